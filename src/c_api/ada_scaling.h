/* The rules and policies of src/scaling for programs that are no part of ada-train: libada_scaling,
   plain C, numbers and text alone. A program in another language computes its tensors itself, says
   what it saw of them, and multiplies by the factor that comes back.

   Functions that can fail return NULL or a status other than 0; ada_error() then says why. Texts
   that are returned stay until the same thread's next call. A policy and its layers belong to one
   thread at a time.

   An attempt goes like this: ada_policy_look says what the update will read. The loss is multiplied
   by ada_policy_scale. In the backward pass each layer calls ada_layer_needs, then ada_layer_decide
   with the scale that its dy carries, multiplies by alpha, and where the decision wants a tail
   calls ada_layer_observe. At the end ada_policy_update hears how the attempt ended, and says
   whether the weights may change. */
#pragma once

#include <stdint.h> /* NOLINT(modernize-deprecated-headers): C reads it too */

/* NOLINTBEGIN(readability-identifier-naming): names as C has them. */
#ifdef __cplusplus
extern "C" {
#endif

#define ADA_API __attribute__((visibility("default")))
#define ADA_INTERFACE 4 /* grows with each change that a caller has to know of */
ADA_API int32_t ada_interface(void);
ADA_API const char* ada_error(void);

/* --- Policies --- */

typedef struct ada_policy ada_policy;
typedef struct ada_layer ada_layer;

typedef struct {
  int32_t awaits_start;      /* init_scale: auto: ada_policy_start before the first attempt */
  int32_t constant_scale;    /* ada_policy_scale never changes */
  int32_t owns_layer_scales; /* adaptive, layerwise_dynamic */
  int32_t scales_batch_norms;
  int32_t scales_attention; /* the four gradients within attention choose an alpha each */
  int32_t follows_reference;
  int32_t needs_amax, needs_layers; /* what the next ada_policy_update reads of ada_outcome */
  double needs_edge;                /* 0: counts above and below it are not read */
  int32_t sanitizes;                /* an overflow of the next attempt is repaired, not skipped */
  int64_t max_retries;              /* attempts that may follow the first of a step */
} ada_policy_facts;

/* The section `scaling:` of a configuration as YAML (JSON is YAML), with its keys and checks. */
ADA_API ada_policy* ada_policy_new(const char* section);
ADA_API void ada_policy_free(ada_policy* policy);
ADA_API const char* ada_policy_name(const ada_policy* policy);
/* Every key of the section, defaults filled in, as one line of YAML. */
ADA_API const char* ada_policy_section(const ada_policy* policy);
ADA_API void ada_policy_look(const ada_policy* policy, ada_policy_facts* facts);
ADA_API double ada_policy_scale(const ada_policy* policy);
/* 0 where it fails. */
ADA_API double ada_policy_layer_scale(const ada_policy* policy, const char* layer);
/* 1 or 0; -1 where it fails. */
ADA_API int32_t ada_policy_rescales_branches(const ada_policy* policy, const char* layer);
/* Chooses the start from the largest logit gradient at S = 1 and the largest value of the narrowest
   format of gradients, and tells the policy; returns why. */
ADA_API const char* ada_policy_start(ada_policy* policy, double largest, double u_max);

typedef struct {
  int32_t overflow; /* some weight gradient is not finite */
  double amax;      /* largest |unscaled weight gradient| */
  int64_t above, below;
  const char* const* layers; /* names of layers whose own gradients are not finite */
  int32_t layer_count;
} ada_outcome;

enum { ADA_UPDATE = 0, ADA_SKIP = 1, ADA_SANITIZE = 2 };
typedef struct {
  int32_t action;
  double before, after;
  const char* reason; /* why the scale changed; empty where it stayed */
} ada_update;
/* 0, or 1 where the policy ends the run: ada_error() has its words. */
ADA_API int32_t ada_policy_update(ada_policy* policy, const ada_outcome* outcome, ada_update* made);

/* State as a map of texts in JSON; NULL where a layer's name is not UTF-8. */
ADA_API const char* ada_policy_save(const ada_policy* policy);
ADA_API int32_t ada_policy_load(ada_policy* policy, const char* state);

/* --- Layers --- */

typedef struct {
  const char* name;
  double fan_reference, fan_exact;
  double u_min, u_max; /* of the format of dx */
  int32_t has_weight, fp16_gradients;
  int32_t within; /* a gradient within attention: the authors' program has none (`reference`) */
} ada_layer_info;
/* Once a layer, in forward order, before the first attempt; NULL where it fails. */
ADA_API ada_layer* ada_layer_new(ada_policy* policy, const ada_layer_info* info);
ADA_API void ada_layer_free(ada_layer* layer);
ADA_API const char* ada_layer_method(const ada_layer* layer);

enum { ADA_NEEDS_MOMENTS = 1, ADA_NEEDS_LOGS = 2, ADA_NEEDS_PRODUCTS = 4 };
/* What the next ada_layer_decide reads. */
ADA_API int32_t ada_layer_needs(const ada_layer* layer);

/* Of all values of a tensor as stored, zeros included; min_abs of those other than zero (0: none).
   mean_square: NaN where a value is NaN, else inf where one is infinite. */
typedef struct {
  double mean, mean_square;
  float min, max, min_abs;
} ada_moments;
typedef struct {
  ada_moments dy, w;
  double log_mean, log_std;
  double product_min, product_max;
} ada_observation;
typedef struct {
  double unbound, bound, pow2; /* NaN: the stage was not taken */
  float scale_in, alpha, scale_out;
  const char* limit;   /* the word of scales.csv; it stays */
  int32_t alpha_first; /* dy is multiplied by alpha, which rounds it, and not dx (`reference`) */
  int32_t failed;      /* an exception of the original program: ada_error() has it */
  int32_t wants_tail;  /* exact_range: ada_layer_observe after dgrad */
} ada_decision;
/* state_scale: ada_policy_layer_scale; only layerwise_dynamic reads it. */
ADA_API void ada_layer_decide(ada_layer* layer, const ada_observation* seen, float scale_in,
                              float state_scale, ada_decision* made);

#define ADA_TAIL_BINS 256
/* bins[e]: values other than zero of the dgrad before alpha whose fp32 exponent field is e;
   nonzero: all of them; largest: max |dgrad|. */
typedef struct {
  int64_t bins[ADA_TAIL_BINS];
  int64_t nonzero;
  double largest;
} ada_tail;
ADA_API void ada_layer_observe(ada_layer* layer, const ada_tail* tail);

ADA_API const char* ada_layer_save(const ada_layer* layer);
ADA_API int32_t ada_layer_load(ada_layer* layer, const char* state);

/* --- Branches --- */

/* The scale to which gradients that meet are brought; largest: the largest |g| / S of all of them,
   infinite where one is not finite. NaN where count is below 1; what is not finite where no scale
   is. */
ADA_API float ada_branch_target(const float* scales, int32_t count, double largest, double u_max);
/* Whether a sum at `target` whose largest magnitude is sum_max has to be made again at half of it.
 */
ADA_API int32_t ada_branch_halves(float target, double largest, double sum_max, double u_max);

/* The same as the original program has it (`reference`): magnitudes of each branch, NaN where it
   holds one, in the order of the forward pass; NaN where the original raises. */
ADA_API float ada_branch_target_reference(const float* scales, const float* magnitudes,
                                          int32_t count, float u_max);

/* --- Operands in block-scaled formats (src/number/blocks) --- */

typedef struct ada_block_format ada_block_format;
/* A name (nvfp4) or a map of YAML ({element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3}); NULL
   where it is none. */
ADA_API ada_block_format* ada_block_format_new(const char* text);
ADA_API void ada_block_format_free(ada_block_format* format);
ADA_API const char* ada_block_format_name(const ada_block_format* format);

/* What blocks.csv says of an operand; NaN where there is nothing to say. */
typedef struct {
  int64_t numel, zeros, inf, nan;
  int64_t lost_beside_largest, lost_scale_rounding, lost_scale_floor, lost_tensor_scale, saturated;
  int64_t blocks, zero_blocks, broken_blocks;
  double scale_log2_min, scale_log2_max, scale_log2_mean, scale_log2_std;
  int64_t scale_floor, scale_ceiling;
  double sqnr_db, sqnr_mean_db, sqnr_worst_db;
} ada_block_figures;

/* An operand of y = x w, dx = dy w or dw = x dy in PyTorch's layout. Blocks run along what the
   product sums over: channels of x and dy, input channels of w (forward), or images and pixels of x
   and dy (dw), output channels of w (dx). */
typedef struct {
  int32_t weight;         /* w, not x or dy */
  int32_t linear;         /* of a linear layer: all values of an image are features */
  int32_t along_channels; /* 0: the second of the two above */
  int32_t bf16;           /* values are kept as bf16 */
  int64_t groups;
  int32_t rank;
  const int64_t* dims;
} ada_operand;
/* Quantizes fp32 values in the processor's memory; decoded (may be the same) and figures may be
   NULL. 1 where rank (2 to 16), dims (1 or more each, 2^40 values at most) or groups (which divide
   the channels) make no sense: nothing is written. */
ADA_API int32_t ada_operand_quantize(const ada_block_format* format, const ada_operand* operand,
                                     const float* values, float* decoded,
                                     ada_block_figures* figures);

/* --- Statistics of fp32 values in the processor's memory --- */

ADA_API void ada_moments_of(const float* values, int64_t count, ada_moments* moments);
/* Of values that were multiplied by alpha, a power of two: what they were before. */
ADA_API void ada_tail_of(const float* values, int64_t count, float alpha, ada_tail* tail);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(readability-identifier-naming) */
