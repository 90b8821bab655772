// What other trainers' keys and words are here; what a message names is a section that a
// configuration may have.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config/load.h"
#include "config/refusal.h"

namespace ada::config {
namespace {

constexpr char kFp16[] =
    "that is precision: {format: fp16, preset: autocast} with scaling: {policy: dynamic}";
constexpr char kBf16[] = "that is precision: {format: bf16, preset: autocast}";
constexpr char kHybrid[] =
    "that is precision: {format: fp8_e4m3, gradients: fp8_e5m2, tensor_scaling: {kind: delayed, "
    "history: 16}}";

struct Row {
  std::string lines, ending;
};

const std::vector<Row> kRows = {
    {"mixed_precision: fp16", kFp16},
    {"amp: true", kFp16},
    {"bf16: true", kBf16},
    {"fp16: {enabled: true, initial_scale_power: 16}", kFp16},
    {"fp8_recipe: delayed", kHybrid},
    {"torch_dtype: auto", "did you mean 'precision.format'?"},
    {"train: {bf16: true}", kBf16},
    {"precision: 16-mixed", kFp16},
    {"precision: {dtype: fp16}", "did you mean 'format'?"},
    {"precision: mixed_bfloat16", kBf16},
    {"precision: bf16-true",
     "that is precision: {format: bf16, masters: bf16, optimizer_state: bf16}"},
    {"precision: torch.float16", "did you mean 'fp16'?"},
    {"precision: {recipe: mxfp8}", "did you mean 'te_mxfp8'?"},
    {"loss_scale: 128", "that is scaling: {policy: fixed, scale: 128}"},
    {"gradient_clip_val: 1", "did you mean 'train.clip_norm'?"},
    {"train: {gradient_clip_val: 1}", "did you mean 'clip_norm'?"},
    {"accumulate_grad_batches: 2", "did you mean 'train.accumulate'?"},
    {"trainer: {max_epochs: 3}", "did you mean 'train'?"},
};

std::string Document(const std::string& lines) {
  return lines + "\ndata: {dataset: synthetic}\n" +
         (lines.starts_with("model:") ? "" : "model: {zoo: mlp}\n");
}

// The value that follows `section: ` in a message, with its braces; empty: it is not named.
std::string Named(const std::string& message, const std::string& section) {
  const std::size_t at = message.find(" " + section + ": {");
  if (at == std::string::npos) return "";
  const std::size_t start = at + section.size() + 3;
  int depth = 0;
  for (std::size_t i = start; i < message.size(); ++i) {
    depth += message[i] == '{' ? 1 : message[i] == '}' ? -1 : 0;
    if (depth == 0) return message.substr(start, i + 1 - start);
  }
  return "";
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("another trainer's key or word is told what it is here") {
    for (const Row& row : kRows) {
      CAPTURE(row.lines);
      const std::string message =
          RefusalOf([&] { LoadText(Document(row.lines), "text.yaml", {}); });
      CAPTURE(message);
      CHECK(message.ends_with("; " + row.ending));
      CHECK(message.find('\n') == std::string::npos);
    }
  }

  TEST_CASE("each section that is named can stand in a configuration") {
    for (const Row& row : kRows) {
      CAPTURE(row.lines);
      std::string text = Document("optimizer: {lr: 0.1}");
      for (const char* section : {"precision", "scaling"}) {
        const std::string value = Named(row.ending, section);
        if (!value.empty()) text += std::string(section) + ": " + value + "\n";
      }
      CAPTURE(text);
      CHECK(RefusalOf([&] { LoadText(text, "text.yaml", {}); }) == "(accepted)");
    }
  }
}

}  // namespace ada::config
