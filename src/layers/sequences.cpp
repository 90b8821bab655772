// Layers of sequences: embedding, position_embedding, class_token, rope, attention, select,
// softmax. Positions are rows and columns read row by row; a sequence of tokens is [n, tokens, 1,
// channels].
#include <algorithm>

#include "layers/layer_kind.h"
#include "number/random.h"

namespace ada::layers {
namespace {

// Pixels of an image are tokens, row by row.
std::int64_t PositionsOf(const Shape& shape) { return shape.h * shape.w; }

// --- Embeddings ---

void InferEmbedding(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  Require(in.c == 1, "an embedding reads tokens, one a position; the input is " + ToString(in));
  shapes.output = {1, in.h, in.w, keys.features};
}
std::vector<ParameterSpec> EmbeddingParameters(const LayerKeys& keys, const LayerShapes&) {
  return {{"weight", {keys.vocabulary, keys.features}, {keys.vocabulary, 1, 1, keys.features}}};
}
// The op gathers rows of the fp32 master: there is no rounded copy, unless a tied linear layer
// multiplies by one.
backend::OpSpec EmbeddingSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::EmbeddingSpec>(op);
  spec.w = op.parameters[0].value;
  spec.dw = op.parameters[0].gradient;
  spec.adds_dw = op.adds_dw;
  spec.dw_format = op.dw.format, spec.dw_style = op.dw.style, spec.dw_stats = op.dw.stats;
  return spec;
}

void InferPositionEmbedding(LayerKeys& keys, LayerShapes& shapes) {
  const std::int64_t positions = PositionsOf(shapes.input());
  if (keys.context == 0) keys.context = static_cast<int>(positions);  // the zoo's
  Require(positions <= keys.context, "the input has " + std::to_string(positions) +
                                         " positions, more than context " +
                                         std::to_string(keys.context));
  shapes.output = {1, positions, 1, shapes.input().c};
}
std::vector<ParameterSpec> PositionParameters(const LayerKeys& keys, const LayerShapes& shapes) {
  const std::int64_t channels = shapes.output.c;
  const Shape shape{keys.context, 1, 1, channels};
  if (keys.whole_name) return {{"", {1, keys.context, channels}, shape}};
  return {{"weight", {keys.context, channels}, shape}};
}

void InferClassToken(LayerKeys&, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  shapes.output = {1, PositionsOf(in) + 1, 1, in.c};
}
std::vector<ParameterSpec> ClassTokenParameters(const LayerKeys&, const LayerShapes& shapes) {
  const std::int64_t channels = shapes.output.c;
  return {{"", {1, 1, channels}, {1, 1, 1, channels}}};
}

// --- Rotary positions ---

// The channels of a head are adjacent; the first `rotary` of them are rotated, in pairs.
void InferRope(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  Require(in.c % keys.heads == 0, "heads " + std::to_string(keys.heads) +
                                      " must divide the input's channels " + std::to_string(in.c) +
                                      " (input " + ToString(in) + ")");
  const int width = static_cast<int>(in.c / keys.heads);
  if (keys.rotary == 0) keys.rotary = width;
  Require(keys.rotary <= width && keys.rotary % 2 == 0,
          "rotary " + std::to_string(keys.rotary) + " must be even and at most " +
              std::to_string(width) + ", the width of a head");
  shapes.output = {1, PositionsOf(in), 1, in.c};
}
backend::OpSpec RopeSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::RopeSpec>(op);
  spec.heads = op.keys.heads, spec.rotary = op.keys.rotary, spec.base = op.keys.base;
  spec.interleaved = op.keys.pairing == "interleaved";
  return spec;
}

// --- Attention ---

struct AttentionSizes {
  std::int64_t width;          // of a head
  std::int64_t queries, keys;  // positions
};
// The sizes from shapes that InferAttention has checked.
AttentionSizes SizesOf(const LayerKeys& keys, const LayerShapes& shapes) {
  const Shape& q = shapes.input();
  const bool fused = shapes.inputs.size() == 1;
  const std::int64_t width = q.c / (fused ? keys.heads + 2 * keys.kv_heads : keys.heads);
  return {width, PositionsOf(q), PositionsOf(shapes.inputs[fused ? 0 : 1].shape)};
}

KeyProblem CheckHeads(const LayerKeys& keys) {
  if (keys.kv_heads == 0 || keys.heads % keys.kv_heads == 0) return {};
  return {"kv_heads", "must divide heads, " + std::to_string(keys.heads)};
}

void RequireWidth(const LayerShapes::Input& input, std::int64_t channels, const std::string& what) {
  Require(input.shape.c == channels, what + " has " + ToString(input.shape) + " (" + input.name +
                                         "), expected " + std::to_string(channels) + " channels");
}

// One input: heads queries, then kv_heads keys, then kv_heads values side by side in the channels.
// Three inputs: queries, keys, values; keys and values may have other positions than queries
// (cross-attention). kv_heads below heads: several heads of queries share one of keys and values
// (grouped-query attention).
void InferAttention(LayerKeys& keys, LayerShapes& shapes) {
  const std::size_t count = shapes.inputs.size();
  Require(count == 1 || count == 3,
          "attention takes one input (queries, keys and values side by side) or three, found " +
              std::to_string(count));
  if (keys.kv_heads == 0) keys.kv_heads = keys.heads;
  Require(keys.heads % keys.kv_heads == 0, "kv_heads " + std::to_string(keys.kv_heads) +
                                               " must divide heads " + std::to_string(keys.heads));
  const Shape& first = shapes.input();
  const int parts = count == 1 ? keys.heads + 2 * keys.kv_heads : keys.heads;
  Require(first.c % parts == 0, (count == 1 ? "heads + 2 kv_heads, " : "heads, ") +
                                    std::to_string(parts) + ", must divide the channels of " +
                                    shapes.inputs[0].name + ", " + ToString(first));
  const AttentionSizes sizes = SizesOf(keys, shapes);
  if (count == 3) {
    RequireWidth(shapes.inputs[1], keys.kv_heads * sizes.width, "keys: the second input");
    RequireWidth(shapes.inputs[2], keys.kv_heads * sizes.width, "values: the third input");
    Require(PositionsOf(shapes.inputs[2].shape) == sizes.keys,
            "keys and values differ in positions: " + ToString(shapes.inputs[1].shape) + " and " +
                ToString(shapes.inputs[2].shape));
  }
  shapes.output = {1, sizes.queries, 1, keys.heads * sizes.width};
  shapes.mflop = 4e-6 * static_cast<double>(sizes.queries) * static_cast<double>(sizes.keys) *
                 static_cast<double>(keys.heads * sizes.width);
}

// How many products are summed in a value of a gradient. dk and dv: over the queries, and over the
// heads that share the keys.
double FanOfKeys(const LayerKeys& keys, const LayerShapes& shapes) {
  return static_cast<double>(SizesOf(keys, shapes).queries * (keys.heads / keys.kv_heads));
}
// dp = dy v^T: over the width of a head.
double FanOfScores(const LayerKeys& keys, const LayerShapes& shapes) {
  return static_cast<double>(SizesOf(keys, shapes).width);
}
// dq = ds k: over the keys.
double FanOfQueries(const LayerKeys& keys, const LayerShapes& shapes) {
  return static_cast<double>(SizesOf(keys, shapes).keys);
}

backend::OpSpec AttentionSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::AttentionSpec>(op);
  spec.heads = op.keys.heads, spec.kv_heads = op.keys.kv_heads;
  spec.causal = op.keys.causal;
  spec.dropout = static_cast<float>(op.keys.dropout);
  spec.stream = StreamId(op.layer);
  spec.keeps_probabilities = op.keys.keep_probabilities;
  spec.rounds_p = op.rounds_p, spec.rounds_ds = op.rounds_ds;
  spec.attention_operands = op.attention_operands;
  spec.judged_operands = op.judged_operands;
  spec.p_format = op.p.format, spec.p_style = op.p.style, spec.p_stats = op.p.stats;
  spec.ds_format = op.ds.format, spec.ds_style = op.ds.style, spec.ds_stats = op.ds.stats;
  spec.ds_scale = op.ds_scale;
  spec.scalers = op.scalers;
  spec.x_per_tensor_scales = op.x_per_tensor_scales;
  return spec;
}

// --- Others ---

void InferSelect(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  Require(keys.position < PositionsOf(in),
          "position " + std::to_string(keys.position) + " of an input " + ToString(in) +
              ", whose last one is " + std::to_string(PositionsOf(in) - 1));
  shapes.output = {1, 1, 1, in.c};
}
backend::OpSpec SelectSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::SelectSpec>(op);
  spec.position = op.keys.position;
  return spec;
}

}  // namespace

std::vector<LayerKind> SequenceKinds() {
  return {
      {.name = backend::EmbeddingSpec::kKind,
       .keys = {"vocabulary", "features"},
       .required = {"vocabulary", "features"},
       .infer = InferEmbedding,
       .positions = Positions::kSequence,
       .reads_tokens = true,
       .parameters = EmbeddingParameters,
       .gathers_weight = true,
       .autocast_fp32 = true,
       .autocast_cpu_fp32 = true,
       .keeps_input = true,
       .spec = EmbeddingSpecOf},
      {.name = backend::PositionEmbeddingSpec::kKind,
       .keys = {"context"},
       .required = {"context"},
       .infer = InferPositionEmbedding,
       .positions = Positions::kSequence,
       .parameters = PositionParameters,
       .rounds_gradient = [](const LayerKeys&) { return false; },
       .autocast_fp32 = true,  // an fp32 weight is added, or joined
       .autocast_cpu_fp32 = true,
       .dx_in_place = true,
       .spec = WeightedSpec<backend::PositionEmbeddingSpec>},
      {.name = backend::ClassTokenSpec::kKind,
       .infer = InferClassToken,
       .positions = Positions::kSequence,
       .parameters = ClassTokenParameters,
       .rounds_gradient = [](const LayerKeys&) { return false; },
       .autocast_fp32 = true,  // an fp32 weight is added, or joined
       .autocast_cpu_fp32 = true,
       .spec = WeightedSpec<backend::ClassTokenSpec>},
      {.name = backend::RopeSpec::kKind,
       .keys = {"heads", "base", "pairing", "rotary"},
       .required = {"heads"},
       .infer = InferRope,
       .positions = Positions::kSequence,
       .spec = RopeSpecOf},
      // Backwards it computes the probabilities anew from its inputs.
      {.name = backend::AttentionSpec::kKind,
       .keys = {"heads", "kv_heads", "causal", "dropout", "probabilities", "score_gradients",
                "keep_probabilities"},
       .required = {"heads"},
       .joins = true,
       .least_inputs = 1,
       .follows = true,
       .check = CheckHeads,
       .infer = InferAttention,
       .positions = Positions::kSequence,
       .decisions =
           {{"dv", FanOfKeys}, {"ds", FanOfScores}, {"dq", FanOfQueries}, {"dk", FanOfKeys}},
       .rounds_gradient = [](const LayerKeys&) { return true; },
       .autocast_low = true,
       .keeps_input = true,
       .spec = AttentionSpecOf},
      {.name = backend::SelectSpec::kKind,
       .keys = {"position"},
       .infer = InferSelect,
       .positions = Positions::kNone,
       .rounds_output = false,
       .spec = SelectSpecOf},
      {.name = backend::SoftmaxSpec::kKind,
       .infer = KeepShape,
       .autocast_fp32 = true,
       .keeps_input = true,
       .dx_in_place = true,
       .spec = PlainSpec<backend::SoftmaxSpec>},
  };
}

}  // namespace ada::layers
