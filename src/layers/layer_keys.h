// The keys of layers besides `name`, `kind` and `inputs`, with their defaults: the union over all
// kinds. Which kind accepts which keys is stated in the kind's row (layer_kind.h).
#pragma once
#include <array>
#include <string>
#include <vector>

namespace ada::layers {

// A key that a kind does not have keeps its default and is not read. Keys are set by config/ from
// YAML and by the zoo in code; `infer` of a kind fills in those that follow from the input's shape
// (kernel of a global pool, kv_heads, rotary, context), so that Resolve gives complete keys.
struct LayerKeys {
  int channels = 0;  // of the output
  int features = 0;  // outputs
  // [height, width]
  std::array<int, 2> kernel = {1, 1}, stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  std::array<int, 2> output_padding = {0, 0};  // rows and columns added to the output
  int groups = 1;
  bool bias = true;
  double rate = 0.5;
  double eps = 1e-5, momentum = 0.1;
  double initial_beta = 0;           // of batch norm, at the start
  double min = -1, max = 1;          // of the output
  double slope = 0.01;               // where the input is negative
  std::string approximate = "none";  // or tanh
  std::string mode = "row";          // or batch; of upsample: nearest or bilinear
  bool align_corners = false;        // align centers of the corner pixels, not their edges
  bool ceil_mode = false;            // add a window where the stride does not divide evenly
  bool count_include_pad = true;     // padding counts as zeros in a mean
  std::array<int, 2> size = {1, 1};  // of the output: height, width; of lrn: channels, given twice
  int scale = 2;                     // of height and width
  double value = 1e-6;               // of a factor at the start
  double factor = 1, offset = 0;     // of every channel
  int first = 0;                     // channel of the input
  std::string pool;                  // the layer whose positions it takes
  bool whole = false;                // full windows where those of the pool were cut off
  double alpha = 1e-4, beta = 0.75, k = 1;
  double threshold = 20;     // of beta x, above which softplus is x
  bool per_channel = false;  // a slope for each channel
  int values = 4;            // of a box

  // Keys of sequences.
  int vocabulary = 0;       // tokens
  int context = 0;          // positions at most
  bool whole_name = false;  // position_embedding, no YAML key: its weight is [1, context,
                            // channels], and named as the layer is (torchvision's ViT)
  std::string weight_of;    // the layer whose weight it multiplies
  int heads = 1;
  int kv_heads = 0;  // 0: as many as heads
  bool causal = false;
  double dropout = 0;                     // probability with which a probability is set to zero
  std::string probabilities = "rounded";  // or fp32
  std::string score_gradients = "rounded";
  bool keep_probabilities = false;  // store them from forward to backward
  double base = 10000;              // of angles
  std::string pairing = "half";     // or interleaved
  int rotary = 0;                   // channels of a head that are rotated; 0: all
  int position = 0;                 // of a sequence
};

}  // namespace ada::layers
