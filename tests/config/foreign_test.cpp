// What other trainers' keys and words for precision are here: the section is chosen by the value,
// and what a message names is a section that a configuration may have.
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
constexpr char kFp32[] = "that is precision: {format: fp32}";
constexpr char kAllFp16[] =
    "that is precision: {format: fp16, masters: fp16, optimizer_state: fp16}";
constexpr char kAllBf16[] =
    "that is precision: {format: bf16, masters: bf16, optimizer_state: bf16}";
constexpr char kHybrid[] =
    "that is precision: {format: fp8_e4m3, gradients: fp8_e5m2, tensor_scaling: {kind: delayed, "
    "history: 16}}";
constexpr char kE4M3[] =
    "that is precision: {format: fp8_e4m3, tensor_scaling: {kind: delayed, history: 16}}";
constexpr char kMxfp8[] =
    "that is precision: {format: bf16, operands: mxfp8_e4m3}; recipe: te_mxfp8 rounds its scales "
    "as Transformer Engine does";
constexpr char kBlockwise[] =
    "that is precision: {format: bf16, operands: fp8_block128}; recipe: deepseek_v3 has weights "
    "in squares";

struct Row {
  std::string lines, ending;
};

const std::vector<Row> kRows = {
    // Accelerate, transformers, timm, mmengine, Ultralytics.
    {"mixed_precision: fp16", kFp16},
    {"mixed_precision: bf16", kBf16},
    {"mixed_precision: fp8", kHybrid},
    {"mixed_precision: 'no'", kFp32},
    {"mixed_precision: no", kFp32},
    {"amp: true", kFp16},
    {"amp: bf16", kBf16},
    {"amp: false", kFp32},
    {"amp: {enabled: false}", kFp32},
    {"amp: {dtype: bfloat16}", kBf16},
    {"amp_impl: native", kFp16},
    {"amp_dtype: float16", kFp16},
    {"amp_dtype: torch.bfloat16", kBf16},
    {"model_dtype: bfloat16", kAllBf16},
    {"torch_dtype: float16", kAllFp16},
    {"torch_dtype: torch.float32", kFp32},
    {"torch_dtype: auto", "did you mean 'precision.format'?"},
    {"half: true", kAllFp16},
    {"half: false", kFp32},
    {"bf16: true", kBf16},
    {"bf16: false", kFp32},
    {"optim_wrapper: {type: AmpOptimWrapper, dtype: bfloat16}",
     "AmpOptimWrapper is precision: {format: bf16, preset: autocast}"},
    {"optim_wrapper: {type: AmpOptimWrapper, loss_scale: 512.}",
     "AmpOptimWrapper is precision: {format: fp16, preset: autocast} with scaling: {policy: fixed, "
     "scale: 512}"},
    {"optim_wrapper: {type: OptimWrapper}", "OptimWrapper is precision: {format: fp32}"},
    // Keras, Composer, Lightning.
    {"dtype_policy: mixed_float16", kFp16},
    {"dtype_policy: mixed_bfloat16", kBf16},
    {"dtype_policy: float32", kFp32},
    {"precision: amp_fp16", kFp16},
    {"precision: amp_bf16", kBf16},
    {"precision: amp_fp8", kHybrid},
    {"precision: 16", kFp16},
    {"precision: 32-true", "did you mean 'fp32'?"},
    {"train: {precision: 16-mixed}", kFp16},
    {"train: {precision: bf16-true}", kAllBf16},
    {"train: {precision: bfloat16}",
     "precision is a section of its own: precision: {format: bf16}"},
    {"model: {zoo: mlp, torch_dtype: bfloat16}", kAllBf16},
    {"precision: {dtype: 16-mixed}", kFp16},
    {"precision: {amp: bf16}", kBf16},
    // apex, DeepSpeed, Megatron.
    {"opt_level: O0", kFp32},
    {"opt_level: O1", kFp16},
    {"opt_level: O2", "that is precision: {format: fp16} with scaling: {policy: dynamic}"},
    {"fp16_opt_level: O3", kAllFp16},
    {"fp16_enabled: true", kFp16},
    {"fp16: {enabled: true, initial_scale_power: 16}", kFp16},
    {"fp16: {enabled: false}", kFp32},
    {"initial_scale_power: 16",
     "that is init_scale, 2 to this power, in scaling: {policy: dynamic, init_scale: 65536}"},
    {"scaling: {policy: dynamic, initial_scale_power: 32}",
     "that is init_scale, 2 to this power, in scaling: {policy: dynamic, init_scale: 4294967296}"},
    {"loss_scale: 128", "that is scaling: {policy: fixed, scale: 128}"},
    {"loss_scale: dynamic", "that is scaling: {policy: dynamic}"},
    // Transformer Engine, as Megatron and Accelerate name its choices.
    {"fp8: true", kHybrid},
    {"fp8: hybrid", kHybrid},
    {"fp8: e4m3", kE4M3},
    {"fp8_format: HYBRID", kHybrid},
    {"fp8_format: E4M3", kE4M3},
    {"fp8_format: E5M2",
     "that is precision: {format: fp8_e5m2, tensor_scaling: {kind: delayed, history: 16}}"},
    {"fp8_recipe: delayed", kHybrid},
    {"fp8_recipe: tensorwise", "that is precision: {recipe: te_fp8_current}"},
    {"fp8_recipe: mxfp8", kMxfp8},
    {"fp8_recipe: blockwise", kBlockwise},
    {"precision: {recipe: mxfp8}", "did you mean 'te_mxfp8'?"},
    {"fp8_margin: 0", "that is margin in precision: {tensor_scaling: {kind: delayed, margin: 0}}"},
    {"mxfp8: true", kMxfp8},
    {"mxfp8: false", kFp32},
    {"gradient_clip_val: 1", "did you mean 'train.clip_norm'?"},
    {"accumulate_grad_batches: 2", "did you mean 'train.accumulate'?"},
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
  TEST_CASE("the value of another trainer's key chooses the section that is named") {
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

  TEST_CASE("the keys of a section with another trainer's name are known as well") {
    const std::string message = RefusalOf([] {
      LoadText(Document("trainer: {precision: 16-mixed, max_epochs: 3, epochs: 3,\n"
                        "          gradient_clip_val: 1, accumulate_grad_batches: 2}"),
               "text.yaml", {});
    });
    CHECK(message == std::string("text.yaml:1:1: trainer: unknown key; did you mean 'train'?\n"
                                 "text.yaml:1:11: trainer.precision: ") +
                         kFp16 +
                         "\ntext.yaml:1:32: trainer.max_epochs: did you mean 'train.epochs'?\n"
                         "text.yaml:2:11: trainer.gradient_clip_val: did you mean "
                         "'train.clip_norm'?\n"
                         "text.yaml:2:33: trainer.accumulate_grad_batches: did you mean "
                         "'train.accumulate'?");
  }
}

}  // namespace ada::config
