// The tables of keys, one function a section of the YAML. Each binds to a struct of config.h, which
// must outlive the table. And what the files of the sections share.
// Adding a key means one line in the table of its section, and a member in its struct: reading,
// writing, the resume's comparison, help, completion and the JSON Schema follow from the table.
#pragma once
#include "config/keys/keys.h"

namespace ada::config {

// The whole document.
Section RootSection(Config& config);
// The resolved configuration as a tree.
YamlNode ToNode(const Config& config);

Section DataSection(DataConfig& data);
// mixup and cutmix, of data.augment; what each needs of the other.
std::vector<Key> MixingKeys(AugmentConfig& augment);
void CheckMixing(AugmentConfig& augment, const YamlNode& map, const ReadContext& context);
Section ModelSection(ModelConfig& model);
// Keys that only gpt2, llama and vit have, in `model`; and what does not fit between them.
std::vector<Key> TransformerKeys(TransformerConfig& transformer);
void CheckTransformer(const TransformerConfig& transformer, const YamlNode& map,
                      const ReadContext& context);
Section InitSection(InitConfig& init);
// Makes `scheme` the default of a section that InitSection gave for `init`; `std` is that of a
// normal distribution, which then need not be given.
// The section of the model calls it once it knows which network it is.
void StartBy(InitScheme scheme, double std, Section& section, InitConfig& init);
Section LayerSection(LayerConfig& layer);  // one entry of model.layers
Section PrecisionSection(PrecisionConfig& precision);
Section FormatSection(NumberFormat& format);      // a format as a map
Section BlockFormatSection(BlockFormat& format);  // a block-scaled one
const EnumNames<RoundingKind>& RoundingNames();
Key RandomBitsKey(const RoundingKind& rounding, int& bits);
// The key `operands` of precision, and of an entry of precision.layers; and its scales.
Key OperandsKey(OperandsConfig& operands);
Key LayerOperandsKey(OperandsConfig& operands);
// The key `accumulate` of precision, of an entry of its schedule, and of one of precision.layers.
Key AccumulateKey(AccumulatesConfig& accumulate);
Key SwitchedAccumulateKey(AccumulatesConfig& accumulate);  // of an entry of precision.schedule
Key LayerAccumulateKey(AccumulatesConfig& accumulate);
// One rule, for all products alike: the key `accumulate` of an entry of log.what_if.
Key AccumulatorRuleKey(std::optional<scaling::Accumulator>& rule, std::string meaning);
// What precision.recipe may be, and what it sets of the operands that are not given.
const EnumNames<PrecisionRecipe>& RecipeNames();
const EnumNames<OverflowKind>& OverflowNames();
const EnumNames<TensorScalingConfig::Kind>& OperandScalingNames();
// A key that was given beats the recipe; an operand that is set to "as stored" counts as given. A
// tensor_scaling without a kind has the recipe's; it is a problem where there is none, and so is a
// key that its kind does not have. `map` has the key `operands`.
void FillFromRecipe(PrecisionRecipe recipe, OperandsConfig& operands, const YamlNode& map,
                    const ReadContext& context);
// The recipes without `none`.
EnumNames<PrecisionRecipe> LayerRecipeNames();
// The key precision.schedule, and what its entries ask of each other and of the section.
Key PrecisionScheduleKey(PrecisionConfig& precision);
void CheckPrecisionSchedule(const PrecisionConfig& precision, const YamlNode& map,
                            const ReadContext& context);
// How many layers are spared; `path` is that of the map.
Section SparedSection(SparedConfig& spared, const char* path);
std::vector<Key> RoleKeys(RoleFormatsConfig& roles);
Section LayerPrecisionSection(LayerPrecisionConfig& layer);  // one entry of precision.layers
Section TensorScalingSection(TensorScalingConfig& scaling);  // of stored tensors
Section OperandScalingSection(TensorScalingConfig& scaling);
Section ScalingSection(scaling::Settings& scaling);
// `policy` decides which keys an entry has; the section around it sets it before entries are read.
Section LayerScalingSection(scaling::LayerSettings& layer, const std::string& policy);
Section OptimizerSection(OptimizerConfig& optimizer);
Section ScheduleSection(optim::Schedule& schedule);
Section TrainSection(TrainConfig& train);
Section EvaluateSection(EvaluateConfig& evaluate);
Section DetectionSection(DetectionConfig& detection);
Section LogSection(LogConfig& log);
Section CheckpointSection(CheckpointConfig& checkpoint);
Section ParallelSection(ParallelConfig& parallel);

// Keys that only some tasks have, and the one that says which it is.
Key TaskKey(Task& task);
const char* TaskWord(Task task);
Key ClassWeightsKey(ClassWeightsConfig& weights);
Key RecomputeBatchNormKey(BatchNormStatistics& statistics);

// The key data.label_values: values of label images, or their colors, and the classes.
Key LabelValuesKey(DataConfig& data);
// A problem for each class there that data.class_names does not have.
void CheckLabelValues(const DataConfig& data, const YamlNode& map, const ReadContext& context);

// Parts of `data`: how images are changed.
Section AugmentSection(DataConfig& data);
// The keys random_scale and ssd of data.augment.
Key RandomScaleKey(std::optional<data::Range>& range);
Key SsdKey(std::optional<data::SsdChangesSpec>& ssd);
// Problems where images are changed as their label images or boxes cannot be, or the other way
// round.
void CheckAugmentWithLabels(const DataConfig& data, const YamlNode& map,
                            const ReadContext& context);
// Two numbers, the smaller one first.
Key RangeKey(std::string name, data::Range& field, const Range& within, std::string meaning);
Key ResizeKey(data::ResizeTo& resize);
Key CenterCropKey(data::PictureSize& crop);

// Reads a format given as a name or a map; nullopt and a problem if it is not one, or is a
// block-scaled one. `tensors_only`: no unsigned formats. `also`: other names allowed in this place.
std::optional<NumberFormat> ReadFormatNode(const YamlNode& node, bool tensors_only,
                                           const Names& also, const ReadContext& context);
// The same as a key; unset: nothing.
Key FormatKey(std::string name, std::optional<NumberFormat>& field, std::string meaning);
// The same with a field of one's own.
Key FormatKeyOf(std::string name, std::function<void(const NumberFormat&)> set,
                std::function<std::optional<NumberFormat>()> get, std::string meaning);
// The keys of precision for what an update keeps: masters and optimizer_state.
std::vector<Key> UpdateKeys(PrecisionConfig& precision);
// A problem for each of them that the optimizer cannot have.
void CheckUpdate(const OptimizerConfig& optimizer, const PrecisionConfig& precision,
                 const YamlNode& root, Problems& problems);
Names TensorFormatNames();        // of formats with a sign or a zero, but for those of P3109Schema
std::string TensorFormatWords();  // their names and the form of a map
Key WithoutTables(Key key);       // a format's key that refuses formats with a table
ValueSchema P3109Schema();        // a name of IEEE P3109
YamlNode FormatNode(NumberFormat format);

Names BlockFormatNames();
bool IsBlockMap(const YamlNode& node);  // a map with a key of BlockFormatSection
// A block-scaled format; nullopt, without a problem, if the node is no such map or name.
std::optional<BlockFormat> ReadBlockFormatNode(const YamlNode& node, const ReadContext& context);

// A plain format or one of blocks, likewise.
std::optional<AnyFormat> ReadAnyFormatNode(const YamlNode& node, bool tensors_only,
                                           const ReadContext& context);
Names AnyFormatNames();  // of tensors
// Schemas of their maps. They stand before those of other maps, whose keys they do not have.
std::vector<ValueSchema> AnyFormatMaps();
Key AnyFormatKey(std::string name, std::optional<AnyFormat>& field, std::string meaning);
YamlNode AnyFormatNode(const AnyFormat& format);
// The message for a block-scaled format where a plain one is needed; "" for anything else.
std::string BlockFormatMisplaced(const YamlNode& node);
// Where block-scaled formats go, with `format` as the example.
std::string BlockFormatPlaces(const std::string& format);
// Where a plain format is needed: what a word means that is near the name of a block-scaled one, or
// has such a hint, or is a recipe; "": none of these.
std::string BlockFormatMeant(const std::string& word, const std::string& hint);
// The key model.layers: a list of layers with `repeat` blocks, expanded while it is read.
Key LayersKey(std::vector<LayerConfig>& layers);

// The key model.file: only its text, because the network has been merged into the tree.
Key ModelFileKey();
// Merges the `model:` section of the file that `model.file` names into the tree: keys next to
// `model.file` win over those of the file, in `init` also key by key. Messages about the file's
// content name the place of the key and the place in the file. If --set gives `model.file` or
// another network, that one is used, and the other one dropped with a line in `notes`.
void TakeModelFile(YamlNode& root, Problems& problems, std::vector<std::string>& notes);
// Replaces a leading `~` and every ${VAR} of a path; why it cannot, or nothing.
std::string ExpandPath(std::string& path);
// Why a path, or a run's name, cannot be one, or nothing.
std::string RefuseBytes(const std::string& path);
std::string RefuseName(std::string& name);
// Channels and classes of a data set's images; 0 where only its files say it.
// Both are known before any file is opened for data sets whose row in the catalog says it, and for
// made-up images.
int ChannelsOf(const DataConfig& data);
int ClassesOf(const DataConfig& data);

// Steps: more than any run makes.
inline constexpr double kMostSteps = 1e9;

// --- Parts of `scaling` ---

// A scale is an fp32 value; limits that are powers of two keep products finite.
Range ScaleRange();
Range ShareRange();  // above 0, at most 1

// The keys of policy adaptive, without `scale` and `layers`.
std::vector<Key> AdaptiveKeys(scaling::Settings& scaling);
// Whether the section or one of its layers says `method: fixed`; of what was read, and of what was
// written.
bool UsesMethodFixed(const scaling::Settings& scaling);
bool AnyMethodIsFixed(const YamlNode& map);
// Checks across the section's keys; under `reference`, `fan` is the reference's unless it is given.
void CheckScaling(scaling::Settings& scaling, const YamlNode& map, const ReadContext& context);

// ConfigError where an entry of `layers` crosses a bound of the section, defaults filled in, that
// no other entry can replace.
void CheckLayerBounds(const scaling::Settings& scaling);

// --- Across sections ---

// The task that a data set, or a network of the zoo, is for. `external` and what is not known
// are for classification. Tensors are for language as well.
// CheckTask compares them with `task`, which is never derived from them.
Task TaskOfDataset(const std::string& dataset);
Task TaskOfZoo(const std::string& zoo);
// What the task asks of the other sections, and which keys are of another task.
void CheckTask(const Config& config, const YamlNode& root, Problems& problems);

// Fills name, output and model.classes where the document does not give them, then checks what no
// section can check alone. `file` is the path given.
// Called by LoadText only, after all sections were read. Problems are added, not thrown.
void Complete(Config& config, const YamlNode& root, const std::string& file, Problems& problems);

}  // namespace ada::config
