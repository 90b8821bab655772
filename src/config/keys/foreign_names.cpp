// A table of names by place, and the look-up in it. A line stands where a program that many come
// from has a name that the nearest-name hint of io/text.h would miss or misread.
#include <string_view>

#include "config/keys/keys.h"
#include "io/text.h"
#include "scaling/policies/policies.h"
#include "scaling/policies/presets.h"

namespace ada::config {
namespace {

// Names are plain (lower case, underscores). A meaning that holds a blank is a sentence, any other
// a key or word of ours. Place "" holds keys of any section, as dotted paths.
struct ForeignName {
  std::string_view place;  // section, path of a key, or kFormats
  std::string_view names;  // with blanks between
  std::string_view meaning;
};

constexpr std::string_view kFormats = "format";
constexpr std::string_view kAutocastFp16 =
    "that is precision: {format: fp16, preset: autocast} with scaling: {policy: dynamic}";
constexpr std::string_view kAutocastBf16 = "that is precision: {format: bf16, preset: autocast}";
constexpr std::string_view kDelayedHybrid =
    "that is precision: {format: fp8_e4m3, gradients: fp8_e5m2, tensor_scaling: {kind: delayed, "
    "history: 16}}";

// From PyTorch, Lightning, Keras, Hugging Face, timm, mmengine, DeepSpeed, Megatron and Transformer
// Engine.
const ForeignName kNames[] = {
    {"", "epochs num_epochs max_epochs num_train_epochs", "train.epochs"},
    {"", "max_steps max_iter", "train.max_steps"},
    {"", "lr learning_rate base_lr", "optimizer.lr"},
    {"", "opt", "optimizer.kind"},
    {"", "batch_size train_batch_size", "data.batch_size"},
    {"", "num_workers workers", "data.workers"},
    {"", "data_dir train_data_dir", "data.path"},
    {"", "max_grad_norm gradient_clip_val clip_grad_norm gradient_clipping grad_clip clip_grad",
     "train.clip_norm"},
    {"", "gradient_accumulation_steps accumulate_grad_batches grad_accum_steps",
     "train.accumulate"},
    {"", "label_smoothing smoothing", "train.label_smoothing"},
    {"", "lr_scheduler scheduler sched param_scheduler", "schedule"},
    {"", "trainer training training_args", "train"},
    {"", "network net arch", "model"},
    {"", "pretrained load_from checkpoint_path", "model.init.weights"},
    {"", "output_dir out_dir save_dir work_dir", "output"},
    {"", "random_seed manual_seed", "seed"},
    {"", "amp use_amp fp16 mixed_precision autocast opt_level amp_dtype optim_wrapper",
     kAutocastFp16},
    {"", "bf16 use_bf16", kAutocastBf16},
    {"", "dtype torch_dtype dtype_policy", "precision.format"},
    {"", "fp8 fp8_format fp8_recipe use_fp8", kDelayedHybrid},
    {"", "loss_scale loss_scaling", "that is scaling: {policy: fixed, scale: 128}"},
    {"data", "root dir folder", "path"},
    {"data", "val_batch_size test_batch_size eval_batch_size", "evaluate_batch_size"},
    {"data", "validation_split val_split val_size", "validation"},
    {"data", "block_size seq_len seq_length max_seq_len sequence_length", "context"},
    {"model", "name type arch architecture backbone", "zoo"},
    {"model", "num_classes n_classes", "classes"},
    {"model", "hidden_size hidden_sizes hidden_units", "hidden"},
    {"model", "num_layers depth",
     "mlp has `hidden`, a size for each layer; others have it in their names (resnet20)"},
    {"model.layers[]", "type op layer", "kind"},
    {"model.layers[]", "out_channels filters num_filters", "channels"},
    {"model.layers[]", "out_features units", "features"},
    {"model.layers[]", "in_channels in_features num_features",
     "it follows from the layer before; leave it out"},
    {"model.layers[]", "kernel_size pool_size", "kernel"},
    {"model.layers[]", "p", "rate"},
    {"precision", "dtype type precision compute_dtype", "format"},
    {"precision.tensor_scaling", "amax_history_len", "history"},
    {"precision.schedule[]",
     "preset tensor_scaling overflow masters optimizer_state "
     "accumulated_gradients schedule",
     "it is the same for the whole training; an entry may change format, its roles, layers, "
     "rounding, recipe and operands"},
    {"precision.schedule[]", "step start begin", "from_step"},
    {"scaling", "type kind mode", "policy"},
    {"scaling", "initial_loss_scale initial_scale init_loss_scale loss_scale", "init_scale"},
    {"scaling", "steps_per_increase growth_steps loss_scale_window scale_window",
     "growth_interval"},
    {"scaling", "scaling_factor scale_factor",
     "here it is growth_factor, and backoff_factor beside it"},
    {"scaling", "max_gradient_norm", "train.clip_norm"},
    {"optimizer", "type name optimizer algorithm", "kind"},
    {"optimizer", "betas", "here these are beta1 and beta2"},
    {"optimizer", "eps", "epsilon"},
    {"schedule", "type name policy", "kind"},
    {"schedule", "step_size", "every"},
    {"schedule", "t_max total_steps total_iters decay_steps",
     "cosine, linear, poly and one_cycle end with the run, or after their `length`"},
    {"schedule", "warmup_steps num_warmup_steps warmup_iters", "schedule.warmup.steps"},
    {"log", "log_every_n_steps log_interval print_freq", "every"},
    {"checkpoint", "save_total_limit max_to_keep save_top_k", "keep"},
    {"model.init.scheme", "he kaiming kaiming_normal", "he_normal"},
    {"device.kind", "gpu", "cuda"},
    {"scaling.policy", "static constant", "fixed"},
    {"scaling.policy", "amp auto", "dynamic"},
    {"schedule.kind", "cosineannealinglr cosine_annealing cosine_decay", "cosine"},
    {"model.layers[].kind", "dense fc", "linear"},
    {"model.layers[].kind", "conv convolution", "conv2d"},
    {"model.layers[].kind", "bn batchnorm2d batchnormalization", "batch_norm"},
    {"precision.recipe", "mxfp8 mxfp8blockscaling", "te_mxfp8"},
    {"precision.recipe", "delayed delayedscaling hybrid", "te_fp8_delayed"},
    {kFormats, "float32 float single full 32 32_true float64 double", "fp32"},
    {kFormats, "float16 half 16", "fp16"},
    {kFormats, "bfloat16 bfloat", "bf16"},
    {kFormats, "16_mixed mixed_float16 amp_fp16", kAutocastFp16},
    {kFormats, "bf16_mixed mixed_bfloat16 amp_bf16", kAutocastBf16},
    {kFormats, "16_true",
     "that is precision: {format: fp16, masters: fp16, optimizer_state: fp16}"},
    {kFormats, "bf16_true",
     "that is precision: {format: bf16, masters: bf16, optimizer_state: bf16}"},
    {kFormats, "hybrid transformer_engine amp_fp8", kDelayedHybrid},
    {kFormats, "fp8 float8", "fp8_e4m3 keeps more digits, fp8_e5m2 more range"},
    {kFormats, "e4m3 e4m3fn float8_e4m3fn", "fp8_e4m3"},
    {kFormats, "e5m2 float8_e5m2", "fp8_e5m2"},
    {kFormats, "float8_e4m3", "fp8_e4m3_ieee"},
    {kFormats, "mxfp8 mx_fp8", "mxfp8_e4m3"},
    {kFormats, "tf32 tensorfloat32", "TF32 is {exponent: 8, mantissa: 10}"},
};

std::string PlainName(const std::string& name) {
  std::string plain;
  for (const char c : name) plain += c == '-' ? '_' : LowerCase(c);
  return plain;
}

// "did you mean 'lr'?" for a key or word; a sentence is returned unchanged.
std::string HintOf(std::string_view meaning) {
  if (meaning.empty() || meaning.find(' ') != std::string_view::npos) return std::string(meaning);
  return "did you mean '" + std::string(meaning) + "'?";
}

// Blanks around both sides make it a search for whole words.
std::string_view Find(std::string_view place, const std::string& plain) {
  for (const ForeignName& known : kNames)
    if (known.place == place &&
        (" " + std::string(known.names) + " ").find(" " + plain + " ") != std::string::npos)
      return known.meaning;
  return "";
}

// A preset or a method where its policy is meant.
std::string OfPolicy(const std::string& path, const std::string& word) {
  if (path != "scaling.policy") return "";
  if (Contains(scaling::PresetNames(), word))
    return "that is a preset: policy: dynamic, preset: " + word;
  for (const scaling::LayerMethod method : scaling::kAdaptiveMethods)
    if (word == MethodName(method)) return "that is a method: policy: adaptive, method: " + word;
  return "";
}

}  // namespace

// A key of any section is one of this section's own without its path.
std::string ForeignKeyHint(const std::string& section, const std::string& name) {
  const std::string plain = PlainName(name);
  std::string_view meaning = Find(section, plain);
  if (!meaning.empty()) return HintOf(meaning);
  meaning = Find("", plain);
  if (meaning == section) return "";
  if (meaning.starts_with(section + ".")) meaning.remove_prefix(section.size() + 1);
  return HintOf(meaning);
}

std::string ForeignWordHint(const std::string& path, const std::string& word) {
  const std::string other = OfPolicy(path, PlainName(word));
  return other.empty() ? HintOf(Find(path, PlainName(word))) : other;
}

// Without the module of `torch.float16`.
std::string ForeignFormatHint(const std::string& name) {
  const std::string plain = PlainName(name);
  return HintOf(Find(kFormats, plain.substr(plain.rfind('.') + 1)));
}

std::string AsEnding(const std::string& hint) { return hint.empty() ? "" : "; " + hint; }

}  // namespace ada::config
