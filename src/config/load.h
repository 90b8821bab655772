// YAML to Config and back. All problems of a file are collected and thrown together as one
// ConfigError, one line each: file:line:column: what, what was expected, the nearest known key.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/derived.h"
#include "config/yaml/problems.h"

namespace ada::config {

// The keys of a file that holds a part of a configuration, each as an override: maps key by key,
// lists and formats as a whole. A file with only comments has none. Throws ConfigError as Load
// does.
Overrides OverridesFrom(const std::string& path);

// What a reading gives: a configuration that passed all checks, and what the caller shall print
// about keys that were dropped on the way.
struct Loaded {
  Config config;
  std::vector<std::string>
      notes;  // keys of the file that an override made meaningless, one line each
};

// Reads and checks `path`; overrides go through the same checks (their place is `--set KEY`, or
// that of the file they are from).
// Throws ConfigError (exit 2); a missing or unreadable file is one as well.
Loaded Load(const std::string& path, const Overrides& overrides);
// The same from text; `name` stands for the file in messages.
Loaded LoadText(const std::string& text, const std::string& name, const Overrides& overrides);

// A `scaling:` section for itself, with what belongs to it in `train:`.
struct LoadedScaling {
  scaling::Settings scaling;
  TrainConfig train;
  std::vector<std::string> notes;  // as in Loaded
};
// Loads from a file that is a whole configuration (its other sections are not looked at), holds
// only `scaling:`, or holds only what stands below it. Overrides set keys of `scaling` and `train`.
// Throws ConfigError as Load does.
LoadedScaling LoadScaling(const std::string& path, const Overrides& overrides);
LoadedScaling LoadScalingText(const std::string& text, const std::string& name,
                              const Overrides& overrides);

// What an update needs: `optimizer`, `precision`, and of `scaling` and `train` what is done with
// gradients before it.
struct LoadedUpdate {
  OptimizerConfig optimizer;
  PrecisionConfig precision;
  scaling::Settings scaling;
  TrainConfig train;
  std::vector<std::string> notes;  // as in Loaded
};
// Loads from a configuration whose other sections are not looked at; an empty path: from the
// overrides alone. Throws ConfigError as Load does.
LoadedUpdate LoadUpdate(const std::string& path, const Overrides& overrides);
// A configuration of `precision`, `seed` and `device` alone, as overrides of their keys make it.
Loaded LoadPrecision(const Overrides& overrides);
// The section without the bf16 that a recipe brings along where `format` is not written: what is
// stored already keeps its format.
PrecisionConfig PrecisionOfStored(const Config& config);

// Policy adaptive as a list of overrides changes it, to compare methods: `scaling.scale` may be
// given without a method that uses it.
struct AdaptiveOverrides {
  scaling::Settings scaling;
  bool has_method = false, has_scale = false;  // given
};
AdaptiveOverrides ReadAdaptive(const Overrides& overrides);

// Reads a format written as after `precision.format`: a name or a YAML map. Throws ConfigError
// whose lines begin with "--format". The commands convert, inspect and what-if use these
// functions, so that they accept the same words as a configuration, and refuse others with the
// same hints.
NumberFormat ReadFormat(const std::string& yaml_text);
// The same, or a block-scaled format.
AnyFormat ReadAnyFormat(const std::string& yaml_text);
// The same of a format that tensors may have, for an option of another name.
AnyFormat ReadTensorFormat(const std::string& option, const std::string& yaml_text);

// The complete resolved configuration, every default filled in, as YAML that Load reads back to an
// equal Config.
std::string ToYaml(const Config& config);

// What a message about a key begins with, once its section has been read: "FILE:3:8: data.resize".
// A key that was not written has the place of the map around it, or none.
std::string KeyText(const Config& config, const std::string& key);

// Fills in what is unset: what scaling::FillDefaults does, and train.on_overflow (what the preset
// does). Throws ConfigError, with its place, for bounds that cross.
void FillScalingDefaults(scaling::Settings& scaling, TrainConfig& train);
// The same for a whole configuration; scaling.reference brings precision.weight_gradients in the
// gradients' format, as the authors' program has them, unless they are set.
// Load does not call it, so that a caller can still change settings whose defaults depend on the
// policy; whoever starts a run from a configuration, resumes one or evaluates calls it first.
void FillDefaults(Config& config);

// One line for each key that differs, but for those that are free to: "key: one's -> the other's".
// Compares the complete documents, so no key can be forgotten.
std::vector<std::string> Differences(const Config& one, const Config& other,
                                     const std::function<bool(std::string_view key)>& is_free);
// The same of what may not change on a resume. Free to change: configs/resume.md,
// "What may differ".
std::vector<std::string> ResumeConflicts(const Config& stored, const Config& now);

// `text` as a YAML value that reads back to exactly this text, for an override that comes from a
// command-line option (--name, --output).
std::string YamlText(std::string_view text);

}  // namespace ada::config
