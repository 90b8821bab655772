// Transformers with a norm before attention and before the MLP (pre-norm). GPT-2: Radford et al.
// (2019), with nanoGPT's names; Llama: Touvron et al. (2023), with Hugging Face's; ViT: Dosovitskiy
// et al. (2021), with torchvision's.
#include <cmath>
#include <string>
#include <vector>

#include "graph/network/zoo_stack.h"

namespace ada::graph {
namespace {

using config::LayerConfig;
using config::ModelConfig;
using config::TransformerConfig;

// Adds layers with the sizes of model.transformer. Layers read the one before unless inputs are
// set, so that a block is written top to bottom.
class TransformerStack : public ZooStack {
 public:
  explicit TransformerStack(const ModelConfig& model)
      : ZooStack(model), model_(model), t_(model.transformer) {}

  void Embedding(const std::string& name) {
    LayerConfig& layer = Add(name, "embedding");
    layer.vocabulary = model_.classes;
    layer.features = t_.width;
  }
  // Without `context` it has one row for each token of the data's sequences.
  LayerConfig& Positions(const std::string& name) {
    LayerConfig& layer = Add(name, "position_embedding");
    layer.context = t_.context.value_or(0);
    return layer;
  }
  void LayerNorm(const std::string& name) {
    LayerConfig& layer = Add(name, "layer_norm");
    layer.eps = t_.eps;
    layer.bias = t_.bias;
  }
  void RmsNorm(const std::string& name) { Add(name, "rms_norm").eps = t_.eps; }
  LayerConfig& Projection(const std::string& name, int features) {
    LayerConfig& layer = Add(name, "linear");
    layer.features = features;
    layer.bias = t_.bias;
    return layer;
  }
  // The last matmul of a branch: it starts smaller the more branches are summed, as in GPT-2.
  void IntoResidual(const std::string& name) {
    Projection(name, t_.width).start_factor = 1 / std::sqrt(2.0 * t_.layers);
  }
  void Gelu(const std::string& name) { Add(name, "gelu").approximate = t_.approximate; }
  LayerConfig& Attention(const std::string& name, bool causal) {
    LayerConfig& layer = Add(name, "attention");
    layer.heads = t_.heads;
    layer.kv_heads = t_.KvHeads();
    layer.causal = causal;
    layer.dropout = model_.dropout;
    layer.keep_probabilities = t_.keep_probabilities;
    return layer;
  }
  void Rope(const std::string& name, int heads, const std::string& input) {
    LayerConfig& layer = Add(name, "rope");
    layer.heads = heads;
    layer.pairing = t_.rope.pairing;
    layer.base = t_.rope.base;
    layer.rotary = t_.rope.rotary.value_or(t_.HeadDim());
    layer.inputs = {input};
  }
  void Dropout(const std::string& name) {
    if (model_.dropout > 0) Add(name, "dropout").rate = model_.dropout;
  }
  // `residual`: the block's input, before its norm.
  void Sum(const std::string& name, const std::string& residual) {
    const std::string branch = last();
    Add(name, "add").inputs = {residual, branch};
  }
  // Logits of the next token.
  void Head(const std::string& name, const std::string& embedding) {
    LayerConfig& layer = Projection(name, model_.classes);
    layer.bias = false;
    if (t_.tied) layer.weight_of = embedding;
  }

  // Channels of all queries, and of all keys (or values).
  int Queries() const { return t_.heads * t_.HeadDim(); }
  int Keys() const { return t_.KvHeads() * t_.HeadDim(); }

 private:
  const ModelConfig& model_;
  const TransformerConfig& t_;
};

// The first multiple of 32 from 8/3 width on, as llama2.c has it.
int HiddenOfLlama(const TransformerConfig& t) {
  return t.hidden.value_or((8 * t.width / 3 + 31) / 32 * 32);
}

}  // namespace

std::vector<LayerConfig> Gpt2(const ModelConfig& model) {
  const TransformerConfig& t = model.transformer;
  TransformerStack net(model);
  net.Embedding("transformer.wte");
  net.Positions("transformer.wpe");
  net.Dropout("transformer.drop");
  for (int i = 0; i < t.layers; ++i) {
    const std::string block = "transformer.h." + std::to_string(i) + ".";
    const std::string x = net.last();
    net.LayerNorm(block + "ln_1");
    net.Projection(block + "attn.c_attn", net.Queries() + 2 * net.Keys());
    net.Attention(block + "attn", true);
    net.IntoResidual(block + "attn.c_proj");
    net.Dropout(block + "attn.resid_dropout");
    net.Sum(block + "add_1", x);
    const std::string x1 = net.last();
    net.LayerNorm(block + "ln_2");
    net.Projection(block + "mlp.c_fc", t.hidden.value_or(4 * t.width));
    net.Gelu(block + "mlp.gelu");
    net.IntoResidual(block + "mlp.c_proj");
    net.Dropout(block + "mlp.dropout");
    net.Sum(block + "add_2", x1);
  }
  net.LayerNorm("transformer.ln_f");
  net.Head("lm_head", "transformer.wte");
  return net.Take();
}

std::vector<LayerConfig> Llama(const ModelConfig& model) {
  const TransformerConfig& t = model.transformer;
  TransformerStack net(model);
  net.Embedding("model.embed_tokens");
  for (int i = 0; i < t.layers; ++i) {
    const std::string block = "model.layers." + std::to_string(i) + ".";
    const std::string x = net.last(), attention = block + "self_attn";
    const auto branch = [&net](const std::string& name, int features, const std::string& input) {
      net.Projection(name, features).inputs = {input};
    };
    net.RmsNorm(block + "input_layernorm");
    const std::string normed = net.last();
    branch(attention + ".q_proj", net.Queries(), normed);
    branch(attention + ".k_proj", net.Keys(), normed);
    branch(attention + ".v_proj", net.Keys(), normed);
    net.Rope(attention + ".rope_q", t.heads, attention + ".q_proj");
    net.Rope(attention + ".rope_k", t.KvHeads(), attention + ".k_proj");
    net.Attention(attention, true).inputs = {attention + ".rope_q", attention + ".rope_k",
                                             attention + ".v_proj"};
    net.IntoResidual(attention + ".o_proj");
    net.Sum(block + "add_1", x);
    const std::string x1 = net.last(), mlp = block + "mlp.";
    net.RmsNorm(block + "post_attention_layernorm");
    const std::string gated = net.last();
    branch(mlp + "gate_proj", HiddenOfLlama(t), gated);
    branch(mlp + "up_proj", HiddenOfLlama(t), gated);
    net.Add(mlp + "act_fn", "silu").inputs = {mlp + "gate_proj"};
    net.Add(mlp + "mul", "multiply").inputs = {mlp + "act_fn", mlp + "up_proj"};
    net.IntoResidual(mlp + "down_proj");
    net.Sum(block + "add_2", x1);
  }
  net.RmsNorm("model.norm");
  net.Head("lm_head", "model.embed_tokens");
  return net.Take();
}

std::vector<LayerConfig> Vit(const ModelConfig& model) {
  const TransformerConfig& t = model.transformer;
  TransformerStack net(model);
  net.Conv("conv_proj", t.width, t.patch, t.patch, 0).bias = t.bias;
  net.Add("class_token", "class_token");
  net.Positions("encoder.pos_embedding").whole_name = true;
  net.Dropout("encoder.dropout");
  for (int i = 0; i < t.layers; ++i) {
    const std::string block = "encoder.layers.encoder_layer_" + std::to_string(i) + ".";
    const std::string x = net.last(), attention = block + "self_attention";
    net.LayerNorm(block + "ln_1");
    net.Projection(attention + ".in_proj", net.Queries() + 2 * net.Keys()).parameter_prefix =
        attention + ".in_proj_";
    net.Attention(attention, false);
    net.IntoResidual(attention + ".out_proj");
    net.Dropout(block + "dropout");
    net.Sum(block + "add_1", x);
    const std::string x1 = net.last();
    net.LayerNorm(block + "ln_2");
    net.Projection(block + "mlp.0", t.hidden.value_or(4 * t.width));
    net.Gelu(block + "mlp.1");
    net.Dropout(block + "mlp.2");
    net.IntoResidual(block + "mlp.3");
    net.Dropout(block + "mlp.4");
    net.Sum(block + "add_2", x1);
  }
  net.LayerNorm("encoder.ln");
  net.Add("heads.token", "select");
  net.Projection("heads.head", model.classes);
  return net.Take();
}

}  // namespace ada::graph
