// Tables of names by section, and the look-up in them. A line is added where a program that people
// come from has a name that the nearest-name hint of io/text.h would miss or misread.
#include "config/keys/foreign_names.h"

#include <string_view>

#include "io/text.h"
#include "scaling/policies/policies.h"
#include "scaling/policies/presets.h"

namespace ada::config {
namespace {

// A meaning that holds a blank is a sentence, any other a key or word of ours.
// Names are plain (PlainName: lower case, underscores). The first line that fits wins, so lines
// with a choice stand before those for any.
struct ForeignName {
  std::string_view place;   // section or key
  std::string_view choice;  // of the section; empty: any
  std::string_view names;   // with blanks between
  std::string_view meaning;
};

// Sentences that several lines share.
constexpr std::string_view kSchedulesEnd =
    "cosine, linear, poly and one_cycle end with the run, or after their `length`";
constexpr std::string_view kFollows = "it follows from the layer before; leave it out";

constexpr std::string_view kStaysInTraining =
    "it is the same for the whole training; an entry may change format, its roles, layers, "
    "rounding, recipe and operands";
constexpr std::string_view kLoader = "data has path, batch_size, workers and shuffle";

// From Keras, PyTorch, Lightning, transformers, timm, mmengine, Transformer Engine, Caffe, and for
// `scaling` from the systems of its presets.
// The empty section is the top of the document, where a key of another program may belong to any of
// our sections: its meaning is a dotted path then, and within a section it is a key of that one.
const ForeignName kKeys[] = {
    {"", "", "train_dataloader val_dataloader test_dataloader dataloader", kLoader},
    {"", "", "train_cfg", "train has epochs and max_steps, evaluate has every_epochs"},
    {"", "", "val_cfg test_cfg val_evaluator test_evaluator", "evaluate"},
    {"", "", "param_scheduler sched lr_config", "schedule"},
    {"", "", "default_hooks custom_hooks", "log and checkpoint are sections of their own"},
    {"", "", "randomness", "seed"},
    {"", "", "work_dir", "output"},
    {"", "", "load_from initial_checkpoint pretrained", "model.init.weights"},
    {"", "", "resume", "it is the option --resume of `ada-train train`"},
    {"", "", "data_preprocessor mean std", "data.normalize"},
    {"", "", "opt", "optimizer.kind"},
    {"", "", "opt_eps", "optimizer.epsilon"},
    {"", "", "opt_betas", "these are optimizer.beta1 and optimizer.beta2"},
    {"", "", "min_lr", "schedule.min_lr"},
    {"", "", "decay_rate", "schedule.gamma"},
    {"", "", "decay_milestones milestones", "schedule.milestones"},
    {"", "", "warmup_epochs", "schedule.warmup.epochs"},
    {"", "", "warmup_lr", "schedule.warmup.lr"},
    {"", "", "clip_grad", "train.clip_norm"},
    {"", "", "smoothing label_smoothing", "train.label_smoothing"},
    {"", "", "grad_accum_steps gradient_accumulation_steps accumulate_grad_batches iter_size",
     "train.accumulate"},
    {"", "", "model_ema ema", "train.ema"},
    {"", "", "model_ema_decay ema_decay", "train.ema.decay"},
    {"", "", "num_classes", "model.classes"},
    {"", "", "drop", "model.dropout"},
    {"", "", "validation_batch_size", "data.evaluate_batch_size"},
    {"", "", "img_size input_size image_size", "data.resize and data.center_crop say it"},
    {"", "", "hflip horizontal_flip", "data.augment.horizontal_flip"},
    {"", "", "color_jitter", "data.augment.color_jitter"},
    {"", "", "mixup cutmix reprob", "data.augment has mixup, cutmix and random_erasing"},
    {"", "", "sync_bn sync_batchnorm", "parallel.sync_batch_norm"},
    {"", "", "log_interval", "log.every"},
    {"", "", "data_dir train_data_dir", "data.path"},
    {"", "", "train_split", "data.splits.train"},
    {"", "", "val_split", "data.splits.test"},
    {"", "", "epochs num_epochs max_epochs", "train.epochs"},
    {"", "", "max_steps steps max_iter", "train.max_steps"},
    {"", "", "lr learning_rate base_lr", "optimizer.lr"},
    {"", "", "momentum", "optimizer.momentum"},
    {"", "", "weight_decay", "optimizer.weight_decay"},
    {"", "", "batch_size train_batch_size", "data.batch_size"},
    {"", "", "dataset", "data.dataset"},
    {"", "", "random_seed manual_seed", "seed"},
    {"", "", "network net architecture arch", "model"},
    {"", "", "lr_scheduler scheduler", "schedule"},
    {"", "", "trainer training training_args training_arguments trainer_args", "train"},
    {"", "", "optim solver", "optimizer"},
    {"", "", "output_dir out_dir save_dir", "output"},
    {"", "", "dtype format", "precision.format"},
    {"", "",
     "gradient_clipping gradient_clip_val max_grad_norm clip_norm clip_grad_norm clip_gradients "
     "grad_clip",
     "train.clip_norm"},
    {"", "", "initial_loss_scale init_loss_scale init_scale", "scaling.init_scale"},
    {"", "", "loss_scale_window growth_interval", "scaling.growth_interval"},
    {"", "", "hysteresis", "scaling.hysteresis"},
    {"", "", "min_loss_scale", "scaling.min_scale"},
    {"", "", "threads", "device.threads"},
    {"", "", "num_workers workers", "data.workers"},

    {"data", "", "root dir data_dir folder train_data_dir", "path"},
    {"data", "", "name type", "dataset"},
    {"data", "", "batch train_batch_size per_device_train_batch_size", "batch_size"},
    {"data", "", "val_batch_size test_batch_size eval_batch_size", "evaluate_batch_size"},
    {"data", "", "num_workers n_workers", "workers"},
    {"data", "", "validation_split val_split val_size", "validation"},
    {"data", "", "orientation apply_exif exif_transpose", "exif"},
    {"data", "", "classes labels label_map palette metainfo",
     "class_names lists them, and label_values says what values or colors mean"},
    {"data", "", "block_size sequence_length seq_len seq_length max_seq_len", "context"},
    {"data", "", "vocab_size", "vocabulary"},
    {"data", "", "random_crop crop", "data.augment.random_crop"},
    {"data", "", "horizontal_flip flip mirror", "data.augment.horizontal_flip"},

    {"model", "", "name type arch architecture backbone", "zoo"},
    {"model", "", "num_classes n_classes", "classes"},
    {"model", "", "hidden_size hidden_sizes hidden_units hidden_dims", "hidden"},
    {"model", "", "num_layers n_layers depth",
     "mlp has `hidden`, a size for each layer; others have it in their names (resnet20)"},
    {"model", "", "dropout_rate drop_rate", "dropout"},
    {"model", "", "weights pretrained checkpoint", "model.init.weights"},
    {"model.init", "", "strict", "ignore_unknown: true and require_all: true say which way"},
    {"model.init", "", "path file checkpoint pretrained", "weights"},
    {"model.init", "", "type name method", "scheme"},
    {"model.init", "", "mode", "fan"},
    {"model.init", "", "zero_init_residual zero_init_last", "zero_gamma"},
    {"model.init", "", "layers groups", "parameters"},

    {"model.layers[]", "", "type op layer", "kind"},
    {"model.layers[]", "", "kernel_size window pool_size", "kernel"},
    {"model.layers[]", "linear", "out_channels channels", "features"},
    {"model.layers[]", "", "out_channels filters num_filters", "channels"},
    {"model.layers[]", "conv2d", "num_output out_features features", "channels"},
    {"model.layers[]", "conv_transpose2d", "num_output out_features features", "channels"},
    {"model.layers[]", "conv_transpose2d", "output_pad out_pad adj", "output_padding"},
    {"model.layers[]", "", "num_output out_features units", "features"},
    {"model.layers[]", "", "in_channels in_features num_features input_dim", kFollows},
    {"model.layers[]", "", "strides", "stride"},
    {"model.layers[]", "", "pad", "padding"},
    {"model.layers[]", "", "dilation_rate", "dilation"},
    {"model.layers[]", "", "group", "groups"},
    {"model.layers[]", "", "use_bias bias_term", "bias"},
    {"model.layers[]", "", "bottom input from", "inputs"},
    {"model.layers[]", "", "p dropout_ratio", "rate"},
    {"model.layers[]", "", "epsilon", "eps"},
    {"model.layers[]", "leaky_relu", "negative_slope alpha", "slope"},
    {"model.layers[]", "hardtanh", "min_val min_value", "min"},
    {"model.layers[]", "hardtanh", "max_val max_value", "max"},
    {"model.layers[]", "prelu", "num_parameters",
     "per_channel: true gives every channel a slope of its own"},
    {"model.layers[]", "prelu", "init", "value"},
    {"model.layers[]", "upsample", "scale_factor", "scale"},
    {"model.layers[]", "upsample", "interpolation", "mode"},
    {"model.layers[]", "pixel_shuffle", "upscale_factor block_size blocksize", "scale"},

    {"precision", "", "dtype type precision compute_dtype", "format"},
    {"precision.schedule[]", "",
     "preset tensor_scaling overflow masters optimizer_state accumulated_gradients schedule",
     kStaysInTraining},
    {"precision.schedule[]", "", "step start start_step begin at from", "from_step"},
    {"precision.tensor_scaling", "", "amax_history_len history_len length", "history"},
    {"precision.tensor_scaling", "", "amax_compute_algo", "amax"},
    {"precision", "", "grads grad gradient backward", "gradients"},
    {"precision.format", "", "exponent_bits exp_bits", "exponent"},
    {"precision.format", "", "mantissa_bits man_bits", "mantissa"},

    {"scaling", "", "type kind mode loss_scaling_factor", "policy"},
    {"scaling", "dynamic", "scale", "init_scale"},  // nnabla, flax
    {"scaling", "histogram", "growth_interval", "update_period"},
    {"scaling", "adaptive", "growth_interval",
     "adaptive has update_interval, the passes between two looks"},
    {"scaling", "fixed", "init_scale loss_scale", "scale"},
    {"scaling", "none", "scale loss_scale", "policy: fixed has a scale"},
    {"scaling", "",
     "initial_loss_scale initial_scale init_loss_scale init_loss_scaling "
     "fp16_init_scale loss_scale start_scale",
     "init_scale"},  // cerebras, megatron; tensorflow, keras; paddle; fairseq; apex
    {"scaling", "",
     "steps_per_increase n growth_steps dynamic_growth_steps loss_scale_window "
     "scale_window fp16_scale_window incr_every_n_steps step_window period",
     "growth_interval"},  // cerebras; nnabla; tensorflow, keras; deepspeed ...; paddle; openseq2seq
    {"scaling", "", "scaling_factor scale_factor step_factor factor multiplier",
     "here it is growth_factor, and backoff_factor beside it"},  // nnabla; apex; openseq2seq; jmp
    {"scaling", "", "incr_ratio", "growth_factor"},
    {"scaling", "", "decr_ratio", "backoff_factor"},
    {"scaling", "", "decr_every_n_nan_or_inf", "hysteresis"},
    {"scaling", "", "overflow_tolerance fp16_scale_tolerance scale_tolerance", "tolerance"},
    {"scaling", "", "min_loss_scale minimum_scale scale_min threshold_loss_scale", "min_scale"},
    {"scaling", "", "max_loss_scale maximum_scale scale_max", "max_scale"},
    {"scaling", "", "max_gradient_norm max_grad_norm clip_norm", "train.clip_norm"},

    {"optimizer", "", "type name optimizer algorithm", "kind"},
    {"optimizer", "", "learning_rate base_lr initial_lr alpha", "lr"},
    {"optimizer", "", "beta_1", "beta1"},
    {"optimizer", "", "beta_2", "beta2"},
    {"optimizer", "", "betas", "here these are beta1 and beta2"},
    {"optimizer", "", "eps", "epsilon"},
    {"optimizer", "", "wd decay l2", "weight_decay"},
    {"optimizer", "", "param_groups parameter_groups params", "groups"},
    {"optimizer.groups[]", "", "params names pattern name", "match"},
    {"optimizer.groups[]", "", "lr lr_mult lr_scale learning_rate",
     "lr_factor is a factor of optimizer.lr"},
    {"optimizer.groups[]", "", "weight_decay decay_mult wd",
     "decay_factor is a factor of optimizer.weight_decay"},
    {"optimizer", "", "clip_norm clipnorm max_gradient_norm", "train.clip_norm"},
    {"optimizer", "", "schedule lr_scheduler", "schedule"},

    {"schedule", "", "type name policy lr_policy", "kind"},
    {"schedule", "step", "step_size steps interval", "every"},
    {"schedule", "", "step_size steps stepvalue boundaries", "milestones"},
    {"schedule", "", "decay_rate factor", "gamma"},
    {"schedule", "", "eta_min end_learning_rate min_learning_rate", "min_lr"},
    {"schedule", "", "t_max total_steps total_iters decay_steps max_count", kSchedulesEnd},
    {"schedule", "", "t_0 first_decay_steps cycle_length", "period"},
    {"schedule", "", "t_mult t_mul cycle_mult", "period_factor"},
    {"schedule", "one_cycle", "pct_start", "rise"},
    {"schedule", "one_cycle", "anneal_strategy", "anneal"},
    {"schedule", "one_cycle", "div_factor", "start_factor"},
    {"schedule", "one_cycle", "final_div_factor", "end_factor"},
    {"schedule", "one_cycle", "max_lr", "optimizer.lr"},
    {"schedule", "", "warmup_epochs", "schedule.warmup.epochs"},
    {"schedule", "", "warmup_steps num_warmup_steps warmup_iters", "schedule.warmup.steps"},
    {"schedule.warmup", "", "start_lr init_lr initial_lr warmup_lr", "lr"},
    {"schedule.warmup", "", "start_factor warmup_factor factor", "lr is the rate itself"},

    {"train", "", "epoch num_epochs max_epochs n_epochs num_train_epochs", "epochs"},
    {"train", "", "steps num_steps max_iter total_steps", "max_steps"},
    {"train", "", "batch_size", "data.batch_size"},
    {"train", "", "by_epoch type val_interval", "evaluate.every_epochs"},
    {"train", "", "lr learning_rate", "optimizer.lr"},
    {"train", "", "seed", "seed stands at the top of the document"},
    {"train", "",
     "max_grad_norm gradient_clip_val clip_grad_norm clip_gradients grad_clip "
     "max_gradient_norm gradient_clipping",
     "clip_norm"},
    {"train", "",
     "gradient_accumulation_steps grad_accumulation_steps "
     "accumulate_grad_batches iter_size",
     "accumulate"},

    {"evaluate", "", "every interval check_val_every_n_epoch", "every_epochs"},
    {"log", "", "interval log_every_n_steps log_interval display print_freq", "every"},
    {"checkpoint", "", "save_steps every_n_train_steps", "every_steps"},
    {"checkpoint", "", "every_n_epochs interval", "every_epochs"},
    {"checkpoint", "", "save_total_limit max_to_keep save_top_k", "keep"},
    {"checkpoint", "", "save_best save_best_only", "best"},
    {"device", "", "type name", "kind"},
    {"device", "", "num_threads workers num_workers", "threads"},
};

// Formats: PyTorch, JAX and ml_dtypes, NumPy; their float8_e4m3 is the one with infinities.
const ForeignName kFormats[] = {
    {"", "", "float32 float single full 32 32_true", "fp32"},
    {"", "", "float16 half 16", "fp16"},
    {"", "", "bfloat16 bfloat", "bf16"},
    {"", "", "64 64_true", "fp32 is the widest"},
    {"", "", "e4m3 e4m3fn float8_e4m3fn fp8_e4m3fn", "fp8_e4m3"},
    {"", "", "e5m2 float8_e5m2", "fp8_e5m2"},
    {"", "", "e3m4 float8_e3m4", "fp8_e3m4"},
    {"", "", "float8_e4m3", "fp8_e4m3_ieee"},
    {"", "", "float8_e4m3fnuz e4m3fnuz", "fp8_e4m3_fnuz"},
    {"", "", "float8_e5m2fnuz e5m2fnuz", "fp8_e5m2_fnuz"},
    {"", "", "float8_e4m3b11fnuz e4m3b11fnuz", "fp8_e4m3_b11fnuz"},
    {"", "", "float6_e2m3fn e2m3", "fp6_e2m3"},
    {"", "", "float6_e3m2fn e3m2", "fp6_e3m2"},
    {"", "", "fp4 float4_e2m1fn e2m1", "fp4_e2m1"},
    {"", "", "mxfp8 mx_fp8 mx8 mxfp8_e4m3fn", "mxfp8_e4m3"},
    {"", "", "mxfp6 mx_fp6 mx6", "mxfp6_e2m3 keeps more digits, mxfp6_e3m2 more range"},
    {"", "", "mxfp4_e2m1 mx_fp4 mx4", "mxfp4"},
    {"", "", "nv_fp4 nvfp4_e2m1 fp4_block16", "nvfp4"},
    {"", "", "float8_blockwise fp8_blockwise fp8_block float8blockscaling", "fp8_block128"},
    {"", "", "fp8 float8", "fp8_e4m3 keeps more digits, fp8_e5m2 more range"},
    {"", "", "fp6 float6", "fp6_e2m3 keeps more digits, fp6_e3m2 more range"},
    {"", "", "tf32 tensorfloat32", "TF32 is {exponent: 8, mantissa: 10}"},
    {"", "", "float64 double fp64", "fp32 is the widest"},
    {"", "", "int8 int4 uint8", "integers are no formats here"},
};

// Words used as values, by the path of their key.
const ForeignName kWords[] = {
    {"precision.recipe", "", "delayed delayedscaling hybrid", "te_fp8_delayed"},
    {"precision.recipe", "", "current tensorwise float8currentscaling", "te_fp8_current"},
    {"precision.recipe", "", "mxfp8 mxfp8blockscaling", "te_mxfp8"},
    {"precision.recipe", "", "blockwise float8blockscaling", "deepseek_v3"},
    {"precision.recipe", "", "nvfp4 nvfp4blockscaling", "te_nvfp4"},
    {"device.kind", "", "gpu", "cuda"},
    {"model.init.scheme", "", "he kaiming kaiming_normal", "he_normal"},
    {"model.init.scheme", "", "kaiming_uniform", "he_uniform"},
    {"model.init.scheme", "", "xavier glorot glorot_normal", "xavier_normal"},
    {"model.init.scheme", "", "glorot_uniform", "xavier_uniform"},
    {"scaling.policy", "", "static constant", "fixed"},
    {"scaling.policy", "", "backoff loss_scale amp auto", "dynamic"},
    {"scaling.policy", "", "delayed", "scales of tensors are precision.tensor_scaling: delayed"},
    {"optimizer.kind", "", "momentum nesterov", "sgd has the keys momentum and nesterov"},
    {"schedule.kind", "", "multisteplr piecewise", "multistep"},
    {"schedule.kind", "", "steps steplr exponential exponentiallr", "step"},
    {"schedule.kind", "", "cosineannealingwarmrestarts cosine_with_restarts sgdr restarts",
     "cosine_restarts"},
    {"schedule.kind", "", "onecycle onecyclelr 1cycle", "one_cycle"},
    {"schedule.kind", "", "cosineannealinglr cosine_annealing cosine_decay", "cosine"},
    {"schedule.kind", "", "polynomial polynomial_decay", "poly"},
    {"schedule.kind", "", "fixed none", "constant"},
    {"model.layers[].kind", "", "dense fc inner_product innerproduct", "linear"},
    {"model.layers[].kind", "", "conv convolution", "conv2d"},
    {"model.layers[].kind", "",
     "convtranspose2d conv2d_transpose conv_transpose transposed_conv2d deconv deconv2d "
     "deconvolution",
     "conv_transpose2d"},
    {"model.layers[].kind", "", "interpolate upsampling upsampling2d upsample_bilinear",
     "upsample has mode: nearest and mode: bilinear"},
    {"model.layers[].kind", "", "pixelshuffle depth_to_space depthtospace subpixel",
     "pixel_shuffle"},
    {"model.layers[].kind", "", "bn batchnorm2d batchnormalization", "batch_norm"},
    {"model.layers[].kind", "", "swish", "silu"},
    {"model.layers[].kind", "", "hard_swish h_swish", "hardswish"},
    {"model.layers[].kind", "", "hard_sigmoid h_sigmoid", "hardsigmoid"},
    {"model.layers[].kind", "", "clip clamp hard_tanh", "hardtanh"},
    {"model.layers[].kind", "", "lrelu leakyrelu", "leaky_relu"},
    {"model.layers[].kind", "", "eltwise residual", "add"},
    {"model.layers[].kind", "", "adaptiveavgpool2d adaptive_avg_pool gap", "global_avg_pool"},
    {"model.layers[].kind", "", "pooling", "max_pool, avg_pool and global_avg_pool are there"},
};

// "did you mean 'lr'?" for a key or word; a sentence is returned unchanged.
std::string HintOf(const std::string& meaning) {
  if (meaning.find(' ') != std::string::npos) return meaning;
  return meaning.empty() ? "" : "did you mean '" + meaning + "'?";
}

// Blanks around both sides make it a search for whole words. The tables are short and only read for
// a message, so a linear search does.
template <std::size_t n>
std::string Find(const ForeignName (&table)[n], std::string_view place, std::string_view choice,
                 const std::string& name) {
  for (const ForeignName& known : table) {
    const bool applies = known.place == place && (known.choice.empty() || known.choice == choice);
    if (applies &&
        (" " + std::string(known.names) + " ").find(" " + name + " ") != std::string::npos)
      return std::string(known.meaning);
  }
  return "";
}

// of_training: the word is said of the whole training, where 16 is Lightning's 16-mixed.
// Returns a format's name, a sentence, or nothing.
std::string FormatMeaning(const std::string& name, bool of_training) {
  const std::string plain = WithoutModule(PlainName(name));  // torch.float16
  const std::string whole = PrecisionOfWord(plain), format = Find(kFormats, "", "", plain);
  const bool is_whole = format.empty() || (of_training && !whole.empty());
  return is_whole ? whole : format;
}

// A key that names the format, in a section that has no such key.
std::string OfFormatKey(const YamlNode& value) {
  const std::string word = value.kind == YamlNode::Kind::kScalar ? value.text : "";
  const std::string meaning = FormatMeaning(word, true);
  if (meaning.find(' ') != std::string::npos) return meaning;
  const std::string format = meaning.empty() ? word : meaning;
  return "precision is a section of its own: precision: {format: " +
         (format.empty() ? "fp16" : format) + "}";
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

// A key or word of ours, or a sentence.
std::string KeyMeaning(const std::string& section, const std::string& choice,
                       const std::string& name, const YamlNode& value) {
  const std::string plain = PlainName(name);
  const std::string known = Find(kKeys, section, choice, plain);
  // `dtype: 16-mixed` of Lightning asks for more than a format: where the value is a word for a
  // whole way of training, the sections that mean the same are named.
  if (known == "format" || known == "precision.format") {
    const std::string word = value.kind == YamlNode::Kind::kScalar ? value.text : "";
    const std::string whole = PrecisionOfWord(WithoutModule(PlainName(word)));
    return whole.empty() ? known : whole;
  }
  if (!known.empty()) return known;
  if (plain == "precision") return OfFormatKey(value);
  return PrecisionOfKey(plain, value);
}

}  // namespace

std::string ForeignKeyHint(const std::string& section, const std::string& choice,
                           const std::string& name, const YamlNode& value) {
  return HintOf(KeyMeaning(section, choice, name, value));
}

// Only where the name means exactly one of our sections: of a sentence or a dotted path it is not
// known where the inner keys belong.
std::vector<ForeignEntry> ForeignEntries(const Entry& entry) {
  const std::string section = Find(kKeys, "", "", PlainName(entry.key.text));
  std::vector<ForeignEntry> found;
  if (section.empty() || section.find_first_of(" .") != std::string::npos) return found;
  for (const Entry& inner : entry.value.entries) {
    const std::string meaning = KeyMeaning(section, "", inner.key.text, inner.value);
    // A bare key is one of the section found; a dotted one or a sentence stands as it is.
    const bool of_section = meaning.find_first_of(" .") == std::string::npos;
    if (!meaning.empty())
      found.push_back({&inner.key, HintOf(of_section ? section + "." + meaning : meaning)});
  }
  return found;
}

std::string ForeignWordHint(const std::string& path, const std::string& word) {
  const std::string other = OfPolicy(path, PlainName(word));
  return other.empty() ? HintOf(Find(kWords, path, "", PlainName(word))) : other;
}

std::string ForeignFormatHint(const std::string& path, const std::string& name) {
  return HintOf(FormatMeaning(name, path == "precision.format"));
}

std::string AsEnding(const std::string& hint) { return hint.empty() ? "" : "; " + hint; }

}  // namespace ada::config
