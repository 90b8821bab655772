// The tables of keys, one function a section of the YAML. Each binds to a struct of config.h, which
// must outlive the table.
#pragma once
#include "config/keys.h"

namespace ada::config {

// The whole document.
Section RootSection(Config& config);
// The resolved configuration as a tree.
YamlNode ToNode(const Config& config);

Section DataSection(DataConfig& data);
Section ModelSection(ModelConfig& model);
Section LayerSection(LayerConfig& layer);  // one entry of model.layers
Section PrecisionSection(PrecisionConfig& precision);
Section FormatSection(NumberFormat& format);  // a format as a map
Section ScalingSection(scaling::Settings& scaling);
Section LayerScalingSection(scaling::LayerSettings& layer, const std::string& policy);
Section OptimizerSection(OptimizerConfig& optimizer);
Section ScheduleSection(optim::Schedule& schedule);
Section TrainSection(TrainConfig& train);
Section EvaluateSection(EvaluateConfig& evaluate);
Section LogSection(LogConfig& log);
Section CheckpointSection(CheckpointConfig& checkpoint);

// A format as a name or a map; nothing and a problem where it is none.
std::optional<NumberFormat> ReadFormatNode(const YamlNode& node, bool tensors_only,
                                           const Reading& reading);
// The same as a key; unset: nothing.
Key FormatKey(std::string name, std::optional<NumberFormat>& field, std::string meaning);
// The key model.layers: a list of layers with `repeat` blocks, expanded while it is read.
Key LayersKey(std::vector<LayerConfig>& layers);

// Replaces a leading `~` and every ${VAR} of a path; why it cannot, or nothing.
std::string ExpandPath(std::string& path);
// Channels and classes of a data set's images.
int ChannelsOf(const DataConfig& data);
int ClassesOf(const DataConfig& data);

}  // namespace ada::config
