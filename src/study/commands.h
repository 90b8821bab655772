// The commands of the command line that look at runs and at files: they train nothing. What they
// print goes to `out`, what a reader of it must know besides to `notes`. All throw ConfigError for
// their options, DataError where a folder holds no run or a file is not as it should be, and
// OutputError.
// Each command is one function that cli/ calls with a struct of options that were already parsed;
// the functions may be called in any order and keep nothing between calls.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "data/images/picture.h"
#include "judge/serving.h"
#include "number/blocks/block_format.h"
#include "number/number_format.h"
#include "number/tables/table_format.h"
#include "scaling/policies/policy.h"
#include "telemetry/log.h"

namespace ada::study {

// Says for whom a command writes: programs, or people at a terminal of 80 columns. kJson: of
// commands with --json beside --csv.
enum class View { kCsv, kTable, kJson };

// inspect: what a number format keeps of the tensors of a safetensors file, and what the methods
// of `adaptive` would choose for the layers whose gradients are in it. The axis is for
// block-scaled formats and the overrides are for plain ones; options that do not fit together are
// a ConfigError.
struct InspectOptions {
  // kText: a line a tensor and a line a layer; kAll: histograms and every stage of a decision;
  // kJson: the rows of kCounts and kScales.
  enum class Output { kText, kAll, kCounts, kScales, kJson };
  std::string path;
  std::string tensors = "*";  // glob: tensors that are counted, layers by the name of their dy
  AnyFormat format = kFp16;   // of blocks: what they lose, and no scales of layers
  std::optional<int> axis;  // along which blocks run, from the end where negative; unset: the last
  // S that NAME.dy and NAME.dx carry; unset: from the file's metadata ("scale:NAME.dy"), or
  // scaling.init_scale, or 1.
  std::optional<double> scale_in;
  config::Overrides overrides;  // keys of `scaling` under policy adaptive
  Output output = Output::kText;
};

// "text", "counts" or "scales"; ConfigError for another word.
InspectOptions::Output ParseInspectOutput(const std::string& word);

// Writes the view to `out` and what was left out of a CSV to `notes`. DataError if the file or a
// layer's tensors are invalid, ConfigError for the options.
void Inspect(const InspectOptions& options, std::ostream& out, std::ostream& notes);

// convert: writes a safetensors file as a format keeps it.
struct ConvertOptions {
  std::string input, output;  // may be the same
  AnyFormat format = kFp16;
  // In the place of `format`: a format of a table, which rounds as `modes` says.
  std::optional<TableFormat> table;
  TableModes modes;
  std::uint64_t seed = 1;     // of stochastic modes
  double scale = 1;           // factor before rounding; it stays in the file
  std::string tensors = "*";  // glob: the float tensors that are converted
  // For block-scaled formats: the axis along which blocks run, from the end where negative (unset:
  // the last), and whether scales and codes are written too.
  std::optional<int> axis;
  bool save_scales = false;
};

// Floats go to the output as RoundTo(format, x * scale), or as QuantizeBlocks decodes them, in F32
// (the product is fp32's, as in a run; that of F64 is a double, rounded once: to the format, or for
// blocks to fp32), all others as they are; names, shapes and metadata are kept, tensors are ordered
// by their element's size. `save_scales` adds the parts of blocks (convert/block_tensor.h), of a
// table's format NAME.codes (U8 or U16). `notes` names what is of a type that is not read. The
// output appears whole or not at all. DataError, ConfigError (a scale that fp32 cannot hold, an
// axis that a tensor has not, a name that is taken), OutputError.
void Convert(const ConvertOptions& options, std::ostream& notes);

// matmul: what the three matmuls of a linear layer, y = x w^T, dx = dy w and dw = dy^T x, lose
// under a `precision`, operand by operand and sum by sum.
struct MatmulOptions {
  std::string path;
  std::string x = "x", w = "w", dy = "dy";  // names of tensors; dy may be missing: y alone
  bool needs_dy = false;                    // its name was given: it must be there
  // What U16 (16 bits) or U8 (8 bits) tensors hold as codes; unset: such a tensor is refused.
  std::optional<NumberFormat> x_format, w_format, dy_format;
  std::string layer = "matmul";  // whose entries of precision.layers apply
  config::PrecisionConfig precision;
  std::uint64_t seed = 1;
  int threads = 0;
  bool stochastic = false;  // roundings that a training makes so; else to nearest
  std::string output;       // safetensors; empty: none
  bool operands = false;    // into `output` as well
  View view = View::kTable;
};

// Prints a table, a CSV with a row for each operand and each result, or the same as JSON. Writes
// `output`: y, dx, dw in F32, and with `operands` forward.x, forward.w, dx.dy, dx.w, dw.x, dw.dy as
// they are multiplied, decoded in F32, each with NAME.codes, NAME.scale and NAME.amax where its
// format has them (as convert's; of a plain format by what values were multiplied).
// DataError for tensors that are missing or do not fit together, OutputError, and what the backend
// throws.
void Matmul(const MatmulOptions& options, std::ostream& out, std::ostream& notes);

// score: metrics of any program's detections and label images with the labels of a data set, as in
// the papers on VOC and CamVid. Both functions write CSV or a table to `out`, and further remarks
// for its reader to `notes`; both throw DataError if a file is invalid. Both folders and lists are
// those of the PASCAL VOC devkit.
struct VocScoreOptions {
  std::vector<std::string> folders;  // in VOC's layout or of years, one after the other
  std::string split = "test";
  std::string detections;  // CSV with the columns image,label,score,xmin,ymin,xmax,ymax
  double overlap = 0.5;    // IoU from which a detection is right
  View view = View::kCsv;
};

// Average precision of each class, of the labels' and the detections' classes together, and the row
// `map`. Boxes of the CSV are in pixels from 0 and count as they stand; `image` is a name of the
// split's list, and one that is not there is an error.
void ScoreVoc(const VocScoreOptions& options, std::ostream& out, std::ostream& notes);

struct SegmentationScoreOptions {
  std::string labels, predictions;  // folders of PNG files of the same names
  std::optional<int> ignored;       // a label whose pixels are not counted
  View view = View::kCsv;
};

// IoU and accuracy of each class up to the largest label that occurs, and the row `all`.
void ScoreSegmentation(const SegmentationScoreOptions& options, std::ostream& out,
                       std::ostream& notes);

// datasets --check: what is wrong with a data set's files, or unlike the others.
struct CheckDataOptions {
  bool csv = false;      // split,kind,ends_run,file,message, one row a fault
  bool progress = true;  // the progress line, on a terminal
};
// Returns the exit code: 3 if a file would end a run. DataError if the set cannot be opened, after
// all findings up to that point. The configuration gives the data set, its place and its splits; no
// network is built.
int CheckData(const config::Config& config, const CheckDataOptions& options, std::ostream& out,
              telemetry::Log& log);

// picture: what the loader of a data set makes of one file, as the network would see it.
// Sizes are in pixels; those of the command line are checked against the picture, which may be
// smaller than a part that is asked for.
struct PictureOptions {
  std::string input;
  std::string output;  // a PNG; empty: none is written
  // Each is left out where it is not set, and done in this order: a part of the picture (columns
  // x0..x1-1, rows y0..y1-1), resizing (the shorter side, or height and width), a square from the
  // middle, mirroring.
  struct Corners {
    int x0, y0, x1, y1;
  };
  std::optional<Corners> box;
  data::PictureRules rules;
  int shorter_side = 0, height = 0, width = 0, center_crop = 0;  // 0: not set
  bool flip = false;
};

// Writes `output` or, if that is empty, the picture's size and kind to `out`, and its size after
// the changes; writes to `notes` what reading it silently changes. ConfigError for a box that is
// empty or outside of the picture, DataError, OutputError.
void ShowPicture(const PictureOptions& options, std::ostream& out, std::ostream& notes);

// replay: what a global policy does with a trace of attempts, by the very object that training
// drives; here with attempts that nobody recorded.
// A step ends with an attempt that is not retried, so there may be more attempts than steps.
struct ReplayPattern {
  std::int64_t steps = 1000;
  std::int64_t every = 50;  // one attempt in this many overflows; 0: none
  double overflow = 0.01;   // the share of all attempts that overflow at random
  std::uint64_t seed = 1;
};

struct ReplayOptions {
  std::string trace;             // a CSV file; "-": standard input; empty: the pattern
  std::string column;            // of the trace; empty: overflow (where the policy wants it: amax)
  ReplayPattern pattern;         // its amax: powers of two, the exponents standard normal
  std::int64_t max_retries = 0;  // as in RetryRule
  std::string title;             // what the policy is called; may be empty
  // layerwise_dynamic: whether an overflow skips the layer alone (preset dalle), or the step.
  bool skips_layers = false;
  View view = View::kCsv;
};

// Feeds the attempts to `policy` and writes CSV to `out`: attempt,step,overflow,scale,skipped,
// scale_after,error; or a table of the stretches that had the same scale. Scales in CSV read back
// to the same double. attempt and step go on from those of the trace's first row, where it has such
// columns, else from 1; a retried attempt keeps its step, which counts updates. The trace has a
// column `overflow` (0 or 1, False or True, 0.0 or 1.0), or is this column without a header; a
// policy that wants amax needs `amax` and takes overflow from it where the trace has no such
// column. Where the policy ends the run, `error` of the last row says so and the rest of the trace
// is not read. A summary goes to `notes`, below a table to `out`. Throws ConfigError for a policy
// that needs more than a trace holds, DataError with file and line.
void Replay(scaling::Policy& policy, const ReplayOptions& options, std::ostream& out,
            std::ostream& notes);

// replay --updates: the parameter `p` of a file through the update rule, with the gradients g.1 ...
// g.N of the same file, in turn.
struct ReplayUpdatesOptions {
  std::string file;  // safetensors; fp32, or types that fp32 holds
  config::LoadedUpdate update;
  std::string output;      // safetensors; empty: none
  std::uint64_t seed = 1;  // of stochastic rounding
  View view = View::kCsv;
};

// Writes p.t, <state>.t, and <state>_codes.t and <state>_scale.t of states in codes, t = 1 .. N, to
// the output, and what the updates lost to `out`: CSV with a row for each step and tensor
// (step,tensor,format,numel,zeros_before,zeros_after,underflow,overflow,zero_denominators,grad_norm,
// skipped), or a table of their sums. DataError for a file without these tensors, or whose
// gradients have another shape.
void ReplayUpdates(const ReplayUpdatesOptions& options, std::ostream& out);

// what-if: from the histograms of a run, what another format, scale or policy would have lost,
// tensor by tensor and step by step.
// Format may be given with a scale or a policy; a scale with a policy only where that is `fixed`.
struct WhatIfOptions {
  std::string folder;
  std::optional<NumberFormat> format;  // unset: each tensor's own
  std::optional<double> scale;  // that the tensor would carry; unset: its own, or the policy's
  std::string policy;           // empty: none is asked about
  config::Overrides overrides;  // keys of `scaling` under that policy
  View view = View::kCsv;
};

// Writes CSV with the columns of what_if.csv to `out` and remarks for its reader to `notes`; or a
// table of the tensors, worst first, with the remarks below it, to `out`. Throws DataError if the
// run has no histograms, ConfigError for the options.
void WhatIf(const WhatIfOptions& options, std::ostream& out, std::ostream& notes);

// what-if --dump: what formats would lose of the operands of the layers in a dump (log.dump), or in
// any file with NAME.x, NAME.w and NAME.dy.
// Every format is judged for every operand; fp32 and others that lose nothing are allowed.
struct WhatIfDumpOptions {
  std::string dump;
  std::string tensors = "*";  // glob of sums: layers by the name of their dy
  std::string command = "what-if";
  std::vector<AnyFormat> formats;
  // Not empty: the sums of products are judged instead, by each of these.
  std::vector<config::AccumulatesConfig> accumulators;
  View view = View::kCsv;
};

// Writes a row for each layer, format and operand (or accumulator, format and product), or a table.
// Sums need an x; those of transposed convolutions are left out. DataError if the file has no such
// layer, or tensors that do not fit together.
void WhatIfDump(const WhatIfDumpOptions& options, std::ostream& out);

// what-if RUN: what each recipe would lose of the operands in the newest dump of a run.
struct WhatIfRecipesOptions {
  std::string folder;
  std::vector<std::string> recipes;  // empty: all
  View view = View::kCsv;
};

// Writes a row for each recipe, layer and operand, or tables; the verdict goes to `notes` beside a
// CSV. DataError where the run has no dump, ConfigError for an unknown recipe.
void WhatIfRecipes(const WhatIfRecipesOptions& options, std::ostream& out, std::ostream& notes);

// The dump of the last step that a run has dumped (log.dump_every). DataError where it has none.
std::string NewestDump(const std::string& folder);

// recommend: the scales and formats that the record of a run speaks for, with the reasons and a
// YAML fragment that can be used at once.
struct RecommendOptions {
  std::string folder;
  double underflow_target = judge::kUnderflowTarget;
  double headroom_bits = judge::kHeadroomBits;
  std::string yaml = {};  // the file into which the fragment goes as well; empty: none
  bool json = false;
};

// Throws DataError where the run has no histograms, OutputError.
void Recommend(const RecommendOptions& options, std::ostream& out);

// advise: at most five changes for the next run, each as a line of YAML with its reason and how
// sure it is; where there are none, what that rests on. Without histograms it says what the other
// files speak for.
// Thresholds of `recommend` hold with their defaults.
struct AdviseOptions {
  std::string folder;
  std::string yaml;  // the file into which all changes go as well, for train --with; empty: none
  bool json = false;
};

// Throws DataError where the folder holds no run, OutputError.
void Advise(const AdviseOptions& options, std::ostream& out);

// blame: forks of a run from its newest checkpoint, on the same batches: as it was, with one layer
// (or block, or kind of tensor) in fp32, and twins whose weights are moved by up to half a unit of
// their layer's format. What changes more than chance does is to blame.
// `effect` and `noise` of the CSV are distances of losses or of gradients, by the metric.
struct BlameOptions {
  enum class Metric { kLoss, kGradient } metric = Metric::kLoss;
  enum class By { kLayer, kBlock, kTensor } by = By::kLayer;
  std::string folder;
  std::int64_t steps = 20;  // of each fork
  int threads = 0;          // 0: as the run
  std::string picture;      // an SVG; empty: none
  View view = View::kTable;
};

// Writes a table or, as CSV, rank,layer,tensor,effect,noise,significant to `out`, significant rows
// first and the worst on top. Progress goes to `log`; with CSV also why a run does not train. The
// results of forks are stored in the run's folder (blame.json), so that the same question can be
// resumed. Throws DataError if the folder has no checkpoint, OutputError, and what training
// throws.
void Blame(const BlameOptions& options, std::ostream& out, telemetry::Log& log);

// assign: the cheapest of some formats for each layer of a network with which the weight gradients
// of its first batch stay within a budget of those in fp32.
struct AssignOptions {
  // It is complete. Its `precision` says how layers are stored whose operands are in a block-scaled
  // format, and nothing else.
  config::Config config;
  std::vector<AnyFormat> formats;  // to choose from; fp32 is always there
  double budget = 1e-3;            // blame's distance of weight gradients
  std::int64_t steps = 50;         // of a training with the formats, and one in fp32; 0: none
  std::string yaml;                // the file into which the section goes as well; empty: none
  bool json = false;
};

// Writes a table, the error, what the trainings gave and the section `precision` to `out`. Throws
// what a training throws, and OutputError.
void Assign(const AssignOptions& options, std::ostream& out, telemetry::Log& log);

// What the commands have in common that train a network several times.
struct ArmsOptions {
  std::string config;               // the path of a configuration
  config::Overrides keys;           // that replace its keys, in every arm
  int seeds = 3;                    // from the configuration's seed on
  std::int64_t steps = 0;           // of each training; 0: as the configuration says
  int jobs = 0;                     // trainings at a time; 0: one per core
  std::string out;                  // the folder; empty: choices/NAME, ablations/NAME
  bool json = false, html = false;  // JSON instead of a table; a page as well
};

// choose: which of some formats, recipes and policies a network should be trained in. It trains
// each arm under each seed, as runs in one folder, and says which is the cheapest whose loss stays
// within a budget of the baseline's.
struct ChooseOptions : ArmsOptions {
  std::vector<std::string> formats;  // the arms, as ReadArms (choose/choice.h) takes them
  std::string baseline = "fp32";     // an arm
  double budget = 0.01;              // a share of the baseline's loss
};

// Returns the exit code: 0, 128 + the signal that ended it (the same options go on), or that of a
// training that failed. Throws ConfigError for options, before anything is trained, DataError and
// OutputError.
int Choose(const ChooseOptions& options, std::ostream& out, telemetry::Log& log);

// ablate: takes the recipe of a configuration apart. It trains the network with each ingredient
// alone and with each left out, and says what each does to the loss, and which do not add up.
struct AblateOptions : ArmsOptions {
  std::vector<std::string> parts;  // ingredients; empty: all
  bool pairs = false;              // trains each two ingredients together as well
};

// Returns and throws as Choose does.
int Ablate(const AblateOptions& options, std::ostream& out, telemetry::Log& log);

// mismatch: how far the predictions of the same weights under two precisions lie apart, or those in
// two files.
struct MismatchOptions {
  // Two files of predictions (study/mismatch/predictions.cpp), or of a network its weights: either
  // file of a checkpoint, or a file of weights; none: as model.init leaves it.
  std::vector<std::string> paths;
  std::string twin;  // of the first file: predictions of equal precision; may be empty
  std::vector<std::string> sides;                  // two names
  config::Config config;                           // of a network
  std::vector<config::PrecisionConfig> precision;  // of a network: two
  std::int64_t samples = 64;                       // of split test, else validation, at most
  bool layers = true;                              // of a network
  std::string picture;                             // an SVG; empty: none
  View view = View::kTable;
};

// Writes a table, mismatch.csv or JSON to `out`. DataError for files, ConfigError for a network
// that cannot be compared, OutputError.
void Mismatch(const MismatchOptions& options, std::ostream& out, telemetry::Log& log);

// The keys of an arm of `choose`: a format, a recipe, either with +POLICY, or a file of keys.
// Throws ConfigError whose text begins with `option`.
config::Overrides KeysOfArm(const std::string& option, const std::string& word);

// compare shows two runs side by side in a terminal of 80 columns: differences of the
// configurations, metrics, scale and underflow per layer, the first step at which the runs part,
// and all that in short. It shows the layers that differ most, or `all`; for different networks the
// layers that lose most. Throws DataError where one of them is no run.
void Compare(const std::string& a, const std::string& b, std::ostream& out, bool all = false);
// The same of two to kMostCompared runs, a line a run; the first is the one that others part from.
inline constexpr std::size_t kMostCompared = 24;
void CompareMany(const std::vector<std::string>& folders, std::ostream& out);
// As JSON, of as many.
void CompareJson(const std::vector<std::string>& folders, std::ostream& out);

// watch: a live table of the layers of a run in progress (or finished), from its files only: it
// works next to the run, over ssh, or on another machine that sees the folder.
struct WatchOptions {
  std::string folder;
  double interval = 1;  // seconds between looks
  bool once = false;    // one look, then the end
};

// Draws on standard output: a table that is redrawn in place on a terminal, plain lines (one block
// a logged step) elsewhere. Ends when the run does; SIGINT ends it too. Returns the exit code.
// Throws DataError where the folder holds no run.
int Watch(const WatchOptions& options);

}  // namespace ada::study
