// What other trainers say of formats and loss scaling, as the sections that mean the same here.
// Keys such as `fp16: true` or `amp_level: O2` mean several of our sections at once, so their hints
// are pieces of YAML to copy. Called by foreign_names.cpp only.
#pragma once
#include <string>

#include "config/yaml/node.h"

namespace ada::config {

// Letter case and - for _ count nothing in names and words of other programs.
std::string PlainName(const std::string& name);
// A plain name without what stands before its last dot: "float16" of "torch.float16".
std::string WithoutModule(const std::string& plain);

// The sections that a word for the whole way of training means ("16_mixed"): "that is precision:
// {format: fp16, preset: autocast} with scaling: {policy: dynamic}". Empty: it is no such word.
std::string PrecisionOfWord(const std::string& plain_word);

// The sections that `plain_name: value` of another trainer means ("amp", "fp8_format"); the value
// decides. Empty: it is no key of formats or loss scaling.
std::string PrecisionOfKey(const std::string& plain_name, const YamlNode& value);

}  // namespace ada::config
