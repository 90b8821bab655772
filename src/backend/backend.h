// The contract between the graph and a backend. A backend allocates tensors and turns specs into
// ops: plans that are slow to make, cheap to call and bound to their tensors. Rounding points,
// formulas and counts are fixed here (and in DESIGN) and are the same in every backend; handles of
// libraries appear nowhere in this file.
//
// A backend works in the order in which it is called, but need not have worked when a call returns:
// people read what ops wrote after Fetch and Synchronize. Ops read and write backend memory alone.
#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/exponent_bins.h"
#include "core/stats.h"
#include "core/tensor.h"
#include "scaling/rules.h"
#include "scaling/tensor_scale.h"

namespace ada::backend {

// What one call of an op is part of.
struct Pass {
  int rows = 0;                // images of this call, at most the n of the tensors
  bool training = true;        // false: running statistics, no dropout
  bool count = false;          // fill every field of the TensorStats, not only max_abs
  bool accumulate = false;     // add to dw and db instead of replacing them (later micro-batches)
  std::int64_t loss_rows = 0;  // images over which the loss is a mean (all micro-batches)
  float init_scale = 1;        // S of the logit gradient
  std::uint64_t seed = 0, draw = 0;  // key and counter of dropout's and rounding's random numbers
  double edge = INFINITY;            // TensorStats::above_edge, where `count` is set
  bool bins = false;                 // fill RoundingStyle::bins as well; goes with `count`
};

// What ops write and people read, or the other way round: counts, scales, decisions. One memory on
// a CPU; elsewhere two, of which Fetch and Send copy one over the other. A part of such memory
// (both pointers moved alike) is SharedMemory too.
struct SharedMemory {
  std::byte* backend = nullptr;  // for specs
  std::byte* host = nullptr;     // for people
  std::size_t bytes = 0;
};

// --- Parts of specs. Pointers to TensorStats, TensorMoments, ExponentBins, scalers, decisions and
// scales are of SharedMemory::backend. ---

// How values are rounded to their tensor's format, beside the format itself.
struct RoundingStyle {
  bool stochastic = false;   // value i of the tensor takes random word i of (seed ^ stream, draw)
  std::uint64_t stream = 0;  // tells rounding points apart
  // A scale of the tensor's own: stored value = round(x * scale) / scale, in fp32 storage; counts
  // are of x * scale. Null: none. The graph updates it between steps.
  const scaling::TensorScaler* scaler = nullptr;
  // False: a pass that counts fills only numel and max_abs of the TensorStats all the same.
  bool counted = true;
  // Filled in a pass that says so, of the values before rounding without any scale (the gradient's
  // S times the tensor's own). Null: not wanted.
  ExponentBins* bins = nullptr;
};

// A gradient: the tensor, the scale S it carries, and what its rounding lost. Optional parts are
// null.
struct Gradient {
  Tensor tensor;
  float* scale = nullptr;
  TensorStats* stats = nullptr;      // null: the values are exact, nothing is rounded
  TensorMoments* moments = nullptr;  // of the stored values, where a consumer asks for them
  // False: of the moments only mean_square and the larger of |min| and |max| need hold.
  bool all_moments = true;
  RoundingStyle style;
  explicit operator bool() const { return static_cast<bool>(tensor); }
};

// Per-block, per-channel sums of a convolution's output, written by its epilogue for batch norm.
struct ChannelMoments {
  float* mean = nullptr;  // [blocks, c]
  float* m2 = nullptr;    // [blocks, c]
};

// A batch norm, with or without a relu, whose output z one convolution or linear layer reads and
// nobody stores. The batch norm's op and the reader's get the same DeferredNorm and share the work;
// what is rounded, counted and summed is what it is where z is stored, block by block of raw.
//
//             batch norm                        reader
//   Forward   mean, inverse, factor             z from raw (rounded and counted) as its x
//   Backward                                    z from raw again (nothing counted) as its x;
//                                               stored dx: zero where z is not positive (relu),
//                                               then sum_dy, sum_dy_xhat of each block
//             dgamma, dbeta and dx, of raw,
//             the sums and its dy: that dx
//
// y = round((raw - mean) * factor + beta); z = max(y, 0) with a relu, else y.
struct DeferredNorm {
  Tensor raw;  // the batch norm's x
  Tensor z;    // shape, format and storage; no data
  bool relu = false;
  float *mean = nullptr, *inverse = nullptr;  // [c]; inverse = 1 / sqrt(var + eps)
  float* factor = nullptr;                    // [c]; gamma * inverse
  const float* beta = nullptr;                // [c]
  TensorStats* y_stats = nullptr;             // written by the reader's Forward
  RoundingStyle y_style;
  // [blocks of raw, c]: of the masked dx, and of it times (raw - mean) * inverse. Null: evaluation.
  float *sum_dy = nullptr, *sum_dy_xhat = nullptr;
  explicit operator bool() const { return static_cast<bool>(raw); }
};

// --- Specs. x, y: activations; w, b: fp32 masters; dw, db: fp32, unscaled; dy in, dx out.
// ---------

struct InputSpec {  // x in fp32 from the host -> y rounded
  Tensor x, y;
  TensorStats* y_stats = nullptr;  // where the input has a scale of its own
  RoundingStyle y_style;
  std::string layer = "input";  // here and below: for messages
};
// y = round(w * x + b); dw = wgrad(x, dy) / S; db = sum(dy) / S; alpha = rule(dy, w);
// dx = round(alpha * dgrad(dy, w)), S_out = S * alpha. dx empty: not computed. The copy of w that
// is multiplied is rounded to w_format, dw (after the division) to dw_format. Under rule.reference:
// dx = round(dgrad(round(alpha * dy), w)), alpha * dy in dy's format.
// With `deferred`, x is its z (no data), and dx, once rounded and noted, is masked in place.
struct ProductSpec {
  std::string layer;
  Tensor x, w, b,
      y;  // w [out, kh, kw, in/groups] in Shape's words; bytes lie as PyTorch's [out, in, kh, kw]
  DeferredNorm deferred;  // empty: x is stored
  TensorStats* y_stats = nullptr;
  TensorStats* w_stats = nullptr;  // rounding of the copy that is multiplied
  NumberFormat w_format = kFp32, dw_format = kFp32;
  RoundingStyle y_style, w_style, dw_style;
  bool reference = false;    // the authors' program: dw, db = round(round(gradient) / S)
  ChannelMoments y_moments;  // optional
  Gradient dy, dx;
  Tensor dw, db;
  TensorStats* dw_stats = nullptr;
  scaling::LayerScaler* scaler = nullptr;  // null where dx is empty
};
struct Conv2dSpec : ProductSpec {
  std::array<int, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
};
struct LinearSpec : ProductSpec {};  // a spatial x is flattened in the order channel, row, column

// y = round((x - mean) / sqrt(var + eps) * gamma + beta) per channel; with `addend`:
// sum = round(y + addend); with `relu`: out = max(., 0). `out` is the last of these. With
// `deferred` (and no addend) out is its z (no data) and dy is masked already.
struct BatchNormSpec {
  Tensor x, gamma, beta, running_mean, running_var, out;
  DeferredNorm deferred;  // empty: out is stored
  Tensor addend;          // empty: none
  bool relu = false;
  float eps = 1e-5f, momentum = 0.1f;
  ChannelMoments x_moments;  // empty: the op takes them itself, to the same bits
  TensorStats* y_stats = nullptr;
  TensorStats* sum_stats = nullptr;  // with addend
  NumberFormat y_format = kFp32;     // of the normalised values before `addend`; without: out's
  RoundingStyle y_style, sum_style;
  Gradient dy;  // gradient of `out`; with relu it is masked in place (the caller owns it alone)
  Gradient dx;  // may lie where dy lies
  Tensor dgamma, dbeta;
  std::string layer;
};
struct ReluSpec {
  Tensor x, y;
  Gradient dy, dx;  // dx may lie where dy lies
  std::string layer;
};
struct MaxPoolSpec {
  Tensor x, y;
  std::array<int, 2> kernel, stride, padding = {0, 0};
  Gradient dy, dx;  // dx.stats only where windows overlap
  std::string layer;
};
struct AvgPoolSpec {  // mean over kernel h x w, padding counted as zeros (PyTorch's default)
  Tensor x, y;
  std::array<int, 2> kernel, stride, padding = {0, 0};
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  Gradient dy, dx;
  std::string layer;
};
struct AddSpec {  // y = round(left-to-right fp32 sum); its backward is an alias, not an op
  std::vector<Tensor> x;
  Tensor y;
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  std::string layer;
};
// The paper's cast at a border between formats: y = round(x), alpha = rule(dy) without a weight,
// dx = round(alpha * dy), S_out = S * alpha; under rule.reference alpha * dy is rounded to dy's
// format first. dx empty: not computed.
struct ScaleSpec {
  Tensor x, y;
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  Gradient dy, dx;
  scaling::LayerScaler* scaler = nullptr;  // null where dx is empty
  std::string layer;
};
struct ShortcutSpec {  // option A: every stride-th pixel, channels padded with zeros on both sides
  Tensor x, y;
  std::array<int, 2> stride;
  Gradient dy, dx;
  std::string layer;
};
struct FlattenSpec {  // [n, h, w, c] -> [n, 1, 1, c*h*w] in the order channel, row, column
  Tensor x, y;
  Gradient dy, dx;
  std::string layer;
};
struct DropoutSpec {
  Tensor x, y;
  float rate = 0.5f;
  std::uint64_t stream = 0;  // tells layers apart in the random numbers
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  Gradient dy, dx;
  std::string layer;
};
// Where an output feeds several layers: sum = round(sum of g_i * target / S_i), S = target
// (scaling::BranchTarget). Where it matters, the op finds the largest magnitude of a branch without
// moments itself: from the stats of a rounding to nearest, else (a dy that was masked in place) by
// looking. If the fp32 sum reaches u_max where no branch did, target is halved.
struct BranchSumSpec {
  std::vector<Gradient> branches;
  Gradient sum;
  scaling::ScaleDecision* decision = nullptr;
  // The authors' program: each branch times its factor (itself rounded to the branch's format) is
  // rounded to that format, then the sum after every addend; BranchTargetReference; no halving.
  bool reference = false;
  // Under `reference`, false where the method is not approx_range: branches are summed as they are,
  // and the sum is said to carry the first one's scale.
  bool rescale = true;
  std::string layer;  // whose output the branches share
};
// Softmax cross-entropy in fp32, mean over Pass::loss_rows; dlogits = round(gradient * init_scale).
struct LossSpec {
  Tensor logits;
  float label_smoothing = 0;
  Gradient dlogits;        // empty: evaluation only
  bool reference = false;  // the authors' program: round(round(gradient) * init_scale)
  std::string layer = "loss";
};

class Op {
 public:
  virtual ~Op() = default;
  virtual void Forward(const Pass& pass) = 0;
  virtual void Backward(const Pass& pass) = 0;
  // Masters changed: make the low-precision copies anew. Of `pass`: count, bins, seed, draw.
  virtual void RefreshWeights(const Pass& /*pass*/) {}
};

// Loss and hits of one call, summed over its rows.
struct LossResult {
  double loss_sum = 0;  // of the rows' losses, label smoothing included
  std::int64_t top1 = 0, top5 = 0;
};
class LossOp : public Op {
 public:
  virtual void SetLabels(const std::int32_t* labels, int rows) = 0;  // host memory, copied
  // The sums of all Forwards since the last one whose Pass::accumulate was false, that one
  // included; each Forward's own sum is added as a whole. Waits for them.
  virtual LossResult Result() = 0;
  // Where SetLabels puts labels, for what fills them in backend memory; null: it has no such place.
  virtual std::int32_t* LabelMemory() { return nullptr; }
};
class InputOp : public Op {
 public:
  virtual void SetImages(const float* images, int rows) = 0;  // host memory [rows, h, w, c]
};

// --- A data set in backend memory ---------------------------------------------------------------

// Pointers are of host memory, copied when the source is made.
struct ImageSourceSpec {
  const std::uint8_t* pixels = nullptr;  // [images, h, w, c]
  const std::uint8_t* labels = nullptr;
  std::int64_t images = 0;
  Shape image;  // n = 1
  int pad = 0;
  bool random_crop = false, horizontal_flip = false;
  const float* table = nullptr;  // [c][256]: what a byte stands for
  std::uint64_t seed = 0;
};
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  // Numbers of images on the host, as many as there are, copied; null: 0, 1, 2, ...
  virtual void SetOrder(const std::uint32_t* order) = 0;
  // Images first .. first + rows of the order, augmented as in `epoch`, in fp32 [rows, h, w, c],
  // and their labels, both into backend memory. To be called outside Backend::Run.
  virtual void Fill(std::int64_t epoch, std::int64_t first, int rows, float* images,
                    std::int32_t* labels) = 0;
};

// --- The update: what turns dw into new masters -------------------------------------------------

// One parameter as the optimizer sees it. State tensors are fp32 of the same shape.
struct UpdateSlot {
  Tensor value, gradient, state1, state2;
  bool decay = true;
};
struct UpdateRule {
  enum class Kind { kSgd, kAdam, kAdamW } kind = Kind::kSgd;
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool nesterov = false;
};
struct UpdateStep {
  double lr = 0;
  double gradient_factor = 1;  // clipping; filled in by the op
  std::int64_t count = 1;      // updates made, this one included (Adam's bias correction)
};
// What is to become of gradients, as far as that is known before they are: the rest the op decides
// itself, without the host.
struct UpdatePlan {
  UpdateStep step;
  double clip_norm = 0;  // > 0: gradients are multiplied by ClipFactor(norm, clip_norm)
  // Where a gradient is not finite: kSkip: nothing changes; kSanitize: NaN become 0, magnitudes
  // above `sanitize_to` (inf too) become it with their sign, then the norm is taken anew for
  // clipping, and the update takes place.
  enum class OnOverflow : std::uint8_t { kSkip, kSanitize } on_overflow = OnOverflow::kSkip;
  float sanitize_to = 0;
  bool largest = false;  // UpdateOutcome::largest is wanted
};
// A rounding that counts like a gradient: where it left its format, nothing is updated.
struct WatchedRounding {
  const TensorStats* stats = nullptr;
  float most = INFINITY;  // magnitudes above it, and NaN, are what counts
};
struct UpdateOutcome {
  double norm = 0;        // global L2 norm of all gradients as they came, in double
  float largest = 0;      // their largest magnitude; inf or NaN where one is (NaN first)
  bool overflow = false;  // one is not finite; then the norm is not either
  bool watched = false;   // a watched rounding left its format
  bool updated = false;
  bool clipped = false;  // gradients were multiplied by less than 1
};
class UpdateOp {
 public:
  virtual ~UpdateOp() = default;
  // Looks at the watched roundings of the backward pass that was asked for last. All looks since
  // the last Update count for the next.
  virtual void Look() = 0;
  virtual void Update(const UpdatePlan& plan) = 0;
  virtual UpdateOutcome Outcome() = 0;  // of the last Update; waits for it
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string Describe() const = 0;  // "cpu (oneDNN 2.6.3, avx512, 2 threads)"
  virtual std::string InstructionSet() const = 0;
  // What of the ops made so far runs otherwise than it best might, one line each, and why:
  // "layer conv1: on oneDNN in fp32: its channels are in groups".
  virtual std::vector<std::string> Remarks() const { return {}; }

  // Memory of `bytes` bytes, zeroed, 64-byte aligned, owned by the backend until it dies.
  virtual std::byte* Allocate(std::size_t bytes) = 0;
  virtual std::size_t allocated_bytes() const = 0;
  virtual void Upload(std::byte* to, const void* from, std::size_t bytes) = 0;
  virtual void Download(void* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void Synchronize() = 0;  // waits for all that was asked for

  // Memory of the backend and, where the host cannot see that, of the host; both zeroed, 64-byte
  // aligned and owned by the backend.
  virtual SharedMemory AllocateShared(std::size_t bytes) {
    std::byte* memory = Allocate(bytes);
    return {memory, memory, bytes};
  }
  // Backend to host, behind the work asked for so far; to be read after the next Synchronize.
  virtual void Fetch(const SharedMemory& /*memory*/) {}
  // Host to backend, before the work asked for from now on. The host's bytes may change at once
  // when it returns.
  virtual void Send(const SharedMemory& /*memory*/) {}

  // Runs `body`, which calls Forward, Backward and RefreshWeights of ops with `pass`, and nothing
  // else. For one `variant` and equal rows, training, count, accumulate and bins of `pass` it calls
  // the same ops in the same order: a backend may keep what it launched and launch that again
  // instead of calling `body`.
  virtual void Run(std::uint64_t /*variant*/, const Pass& /*pass*/,
                   const std::function<void()>& body) {
    body();
  }

  // The first `rows` images of a tensor of the backend's, as fp32 in its own order (NHWC; the bytes
  // of weights lie as PyTorch's), with whatever scale it carries. `out`: rows * per_image values.
  virtual void Read(const Tensor& tensor, std::int64_t rows, float* out) = 0;

  // Backend memory that MakeImageSource would take for such a source (of which pointers may be
  // null); 0: it declines.
  virtual std::size_t ImageSourceBytes(const ImageSourceSpec&) const { return 0; }
  // Null: declined (this is not worth it, or does not fit); images come from the host.
  virtual std::unique_ptr<ImageSource> MakeImageSource(const ImageSourceSpec&) { return nullptr; }

  // Images in one reduction block of tensors of this shape: fixed by the shape alone.
  virtual int BlockImages(const Shape& shape) const = 0;

  virtual std::unique_ptr<InputOp> MakeInput(const InputSpec&) = 0;
  // Null where `deferred` is set, or a batch norm has an addend or a relu: this fusion is declined;
  // the graph then asks for less of it (first without `deferred`) or for the parts.
  virtual std::unique_ptr<Op> MakeConv2d(const Conv2dSpec&) = 0;
  virtual std::unique_ptr<Op> MakeLinear(const LinearSpec&) = 0;
  virtual std::unique_ptr<Op> MakeBatchNorm(const BatchNormSpec&) = 0;
  virtual std::unique_ptr<Op> MakeRelu(const ReluSpec&) = 0;
  virtual std::unique_ptr<Op> MakeMaxPool(const MaxPoolSpec&) = 0;
  virtual std::unique_ptr<Op> MakeAvgPool(const AvgPoolSpec&) = 0;
  virtual std::unique_ptr<Op> MakeAdd(const AddSpec&) = 0;
  virtual std::unique_ptr<Op> MakeShortcut(const ShortcutSpec&) = 0;
  virtual std::unique_ptr<Op> MakeFlatten(const FlattenSpec&) = 0;
  virtual std::unique_ptr<Op> MakeDropout(const DropoutSpec&) = 0;
  virtual std::unique_ptr<Op> MakeScale(const ScaleSpec&) = 0;
  virtual std::unique_ptr<Op> MakeBranchSum(const BranchSumSpec&) = 0;
  virtual std::unique_ptr<LossOp> MakeLoss(const LossSpec&) = 0;
  virtual std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule&, std::vector<UpdateSlot>,
                                               std::vector<WatchedRounding>) = 0;
};

}  // namespace ada::backend
