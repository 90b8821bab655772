// Sizes of the zoo's transformers, gpt2, llama and vit: the keys of `model` that only they have.
// graph/network/zoo_transformers.cpp builds layers of them; section_model.cpp has their keys.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace ada::config {

// The angles of rotary positions; llama only.
struct RopeConfig {
  std::string pairing = "half";  // or interleaved
  double base = 10000;
  std::optional<int> rotary;  // values of a head that turn; unset: all
};

// A size that is not set follows from the others, or from the data.
struct TransformerConfig {
  // The defaults are those of a small network for trials; presets (gpt2_124m) replace them.
  int layers = 4, heads = 4, width = 128;
  // Unset: as many heads for keys and values as for queries; width / heads; and the width of a
  // block's MLP as the family has it (gpt2, vit: 4 width; llama: 8/3 width, rounded up to a
  // multiple of 32).
  std::optional<int> kv_heads, head_dim, hidden;
  std::optional<int> context;     // tokens of a sequence
  std::optional<int> vocabulary;  // another name of ModelConfig::classes
  bool tied = false, bias = true;
  bool keep_probabilities = false;   // of attention, from the forward to the backward pass
  std::string approximate = "none";  // or tanh
  double eps = 1e-5;
  int patch = 4;  // vit: pixels of a side
  RopeConfig rope;

  // Both rely on checked sizes: CheckTransformer refuses a width that is no multiple of heads and
  // kv_heads that do not divide heads.
  int KvHeads() const { return kv_heads.value_or(heads); }
  int HeadDim() const { return head_dim.value_or(width / heads); }
};

// The networks that have these keys, presets of sizes among them.
const std::vector<std::string>& TransformerNames();
// The family of a name, its presets of sizes included.
bool IsGpt2(const std::string& zoo);
bool IsLlama(const std::string& zoo);
bool IsVit(const std::string& zoo);

// The default sizes of the network `zoo`.
TransformerConfig TransformerDefaults(const std::string& zoo);

}  // namespace ada::config
