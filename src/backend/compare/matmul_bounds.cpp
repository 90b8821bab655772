// Sums of products; see matmul_bounds.h.
#include "backend/compare/matmul_bounds.h"

namespace ada::backend::compare {
namespace {

std::size_t At(std::int64_t i) { return static_cast<std::size_t>(i); }
std::array<std::int64_t, 2> Pair(const std::array<int, 2>& p) { return {p[0], p[1]}; }

template <class Spec>
Window PlainWindowOf(const Spec& spec) {
  return {{spec.w.shape.h, spec.w.shape.w},
          Pair(spec.stride),
          Pair(spec.padding),
          Pair(spec.dilation),
          spec.groups};
}

}  // namespace

Window WindowOf(const Conv2dSpec& spec) { return PlainWindowOf(spec); }
Window WindowOf(const ConvTranspose2dSpec& spec) {
  Window window = PlainWindowOf(spec);
  window.transposed = true;
  return window;
}
Window WindowOf(const LinearSpec& spec) {
  Window window;
  const bool sequence = spec.y.shape.h * spec.y.shape.w > 1;
  if (!sequence) window.kernel = {spec.x.shape.h, spec.x.shape.w};
  return window;
}

MatmulOperands::MatmulOperands(const AddressMap& addresses, const MatmulSpec& spec,
                               const Window& window)
    : addresses_(addresses), spec_(spec), window_(window) {}

void MatmulOperands::Begin(const Pass& pass) {
  pass_ = pass;
  x_.reset(), dy_.reset(), scaled_dy_.reset(), w_.reset(), b_.reset();
  alpha_ = 1;
}

bool MatmulOperands::alpha_comes_first() const {
  return spec_.scaler != nullptr && addresses_.Read(0, &spec_.scaler->rule.reference) &&
         addresses_.Read(0, &spec_.scaler->rule.method) != scaling::LayerMethod::kExactRange;
}

const MatmulOperands::Values& MatmulOperands::Of(std::optional<Values>& kept,
                                                 const Tensor& tensor) const {
  if (!kept) kept = addresses_.Values(0, tensor, pass_.rows);
  return *kept;
}

// The copy that is multiplied.
const MatmulOperands::Values& MatmulOperands::W() const {
  if (w_) return *w_;
  w_ = addresses_.Values(0, spec_.w, spec_.w.shape.n);
  const scaling::TensorScaler* own = spec_.w_style.per_tensor_scale;
  const Rounder rounder(spec_.w_format, spec_.w_style,
                        own == nullptr ? 1 : addresses_.Read(0, &own->scale), refresh_);
  for (std::size_t i = 0; i < w_->size(); ++i)
    (*w_)[i] = rounder.Store((*w_)[i], static_cast<std::int64_t>(i));
  return *w_;
}

const MatmulOperands::Values& MatmulOperands::ScaledDy() const {
  if (scaled_dy_) return *scaled_dy_;
  scaled_dy_ = Of(dy_, spec_.dy.tensor);
  if (alpha_comes_first() && alpha_ != 1)
    for (float& v : *scaled_dy_) v = RoundTo(spec_.dy.tensor.format, v * alpha_);
  return *scaled_dy_;
}

bool MatmulOperands::InputPixel(std::int64_t o, std::int64_t k, int axis, std::int64_t size,
                                std::int64_t& i) const {
  const auto a = static_cast<std::size_t>(axis);
  i = o * window_.stride[a] - window_.padding[a] + k * window_.dilation[a];
  return i >= 0 && i < size;
}

// As PyTorch's [out, in / groups, kh, kw].
std::size_t MatmulOperands::WIndex(std::int64_t o, std::int64_t c, std::int64_t kh,
                                   std::int64_t kw) const {
  const std::int64_t in = large().c / window_.groups;
  return At(((o * in + c) * window_.kernel[0] + kh) * window_.kernel[1] + kw);
}

Sum MatmulOperands::Slide(const Values& images, std::int64_t i) const {
  const Shape &x = large(), &y = small();
  const std::int64_t o = i % y.c, ow = i / y.c % y.w, oh = i / y.c / y.w % y.h,
                     n = i / y.per_image();
  const std::int64_t in = x.c / window_.groups, first = o / (y.c / window_.groups) * in;
  const Values& weights = W();
  Sum sum;
  std::int64_t h = 0, w = 0;
  for (std::int64_t kh = 0; kh < window_.kernel[0]; ++kh)
    for (std::int64_t kw = 0; kw < window_.kernel[1]; ++kw) {
      if (!InputPixel(oh, kh, 0, x.h, h) || !InputPixel(ow, kw, 1, x.w, w)) continue;
      for (std::int64_t c = 0; c < in; ++c)
        sum.Add(Wide(images[At(((n * x.h + h) * x.w + w) * x.c + first + c)]) *
                Wide(weights[WIndex(o, c, kh, kw)]));
    }
  return sum;
}

Sum MatmulOperands::Spread(const Values& gradients, std::int64_t i) const {
  const Shape &x = large(), &y = small();
  const std::int64_t c = i % x.c, w = i / x.c % x.w, h = i / x.c / x.w % x.h, n = i / x.per_image();
  const std::int64_t in = x.c / window_.groups, group_out = y.c / window_.groups,
                     first = c / in * group_out;
  const Values& weights = W();
  Sum sum;
  for (std::int64_t kh = 0; kh < window_.kernel[0]; ++kh)
    for (std::int64_t kw = 0; kw < window_.kernel[1]; ++kw) {
      const std::int64_t up = h + window_.padding[0] - kh * window_.dilation[0],
                         left = w + window_.padding[1] - kw * window_.dilation[1];
      if (up < 0 || left < 0 || up % window_.stride[0] != 0 || left % window_.stride[1] != 0)
        continue;
      const std::int64_t oh = up / window_.stride[0], ow = left / window_.stride[1];
      if (oh >= y.h || ow >= y.w) continue;
      for (std::int64_t o = first; o < first + group_out; ++o)
        sum.Add(Wide(gradients[At(((n * y.h + oh) * y.w + ow) * y.c + o)]) *
                Wide(weights[WIndex(o, c % in, kh, kw)]));
    }
  return sum;
}

Sum MatmulOperands::Correlate(const Values& images, const Values& gradients, std::int64_t i) const {
  const Shape &x = large(), &y = small();
  const std::int64_t in = x.c / window_.groups;
  const std::int64_t kw = i % window_.kernel[1], kh = i / window_.kernel[1] % window_.kernel[0],
                     c = i / (window_.kernel[0] * window_.kernel[1]) % in,
                     o = i / (window_.kernel[0] * window_.kernel[1] * in);
  const std::int64_t first = o / (y.c / window_.groups) * in;
  Sum sum;
  std::int64_t h = 0, w = 0;
  for (std::int64_t n = 0; n < pass_.rows; ++n)
    for (std::int64_t oh = 0; oh < y.h; ++oh)
      for (std::int64_t ow = 0; ow < y.w; ++ow)
        if (InputPixel(oh, kh, 0, x.h, h) && InputPixel(ow, kw, 1, x.w, w))
          sum.Add(Wide(images[At(((n * x.h + h) * x.w + w) * x.c + first + c)]) *
                  Wide(gradients[At(((n * y.h + oh) * y.w + ow) * y.c + o)]));
  return sum;
}

Sum MatmulOperands::Y(std::int64_t i) const {
  const Values& x = Of(x_, spec_.x);
  Sum sum = window_.transposed ? Spread(x, i) : Slide(x, i);
  if (!spec_.b) return sum;
  if (!b_) b_ = addresses_.Values(0, spec_.b, spec_.b.shape.n);
  sum.Add(Wide((*b_)[At(i % spec_.y.shape.c)]));
  return sum;
}

Sum MatmulOperands::Dx(std::int64_t i) const {
  return window_.transposed ? Slide(ScaledDy(), i) : Spread(ScaledDy(), i);
}

Sum MatmulOperands::Dw(std::int64_t i) const {
  const Values &x = Of(x_, spec_.x), &dy = Of(dy_, spec_.dy.tensor);
  return window_.transposed ? Correlate(dy, x, i) : Correlate(x, dy, i);
}

Sum MatmulOperands::Db(std::int64_t i) const {
  const Values& dy = Of(dy_, spec_.dy.tensor);
  const std::int64_t channels = spec_.y.shape.c;
  Sum sum;
  for (std::int64_t at = i; at < static_cast<std::int64_t>(dy.size()); at += channels)
    sum.Add(Wide(dy[At(at)]));
  return sum;
}

}  // namespace ada::backend::compare
