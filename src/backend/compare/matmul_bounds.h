// Single values of convolution and linear layers as sums over their products, in double.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "backend/compare/address_map.h"
#include "backend/compare/reference_bounds.h"

namespace ada::backend::compare {

// A linear layer is the convolution whose kernel is the whole image.
struct Window {
  std::array<std::int64_t, 2> kernel = {1, 1}, stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  std::int64_t groups = 1;
  bool transposed = false;  // the window slides over y, its positions are x's
};
Window WindowOf(const Conv2dSpec& spec);
Window WindowOf(const ConvTranspose2dSpec& spec);
Window WindowOf(const LinearSpec& spec);

// What the products of one call are made of, as the first backend has it. Read when first asked
// for: before anything else writes there.
class MatmulOperands {
 public:
  MatmulOperands(const AddressMap& addresses, const MatmulSpec& spec, const Window& window);

  // The pass of the last RefreshWeights, whose random numbers the copies carry.
  void Refresh(const Pass& pass) { refresh_ = pass, w_.reset(); }
  void Begin(const Pass& pass);  // of a call of Forward or Backward; forgets the last one's
  // Under the authors' rules dy is multiplied by alpha and rounded first.
  void SetAlpha(float alpha) { alpha_ = alpha, scaled_dy_.reset(); }

  Sum Y(std::int64_t i) const;   // with the bias
  Sum Dx(std::int64_t i) const;  // before alpha; under the authors' rules with it
  Sum Dw(std::int64_t i) const;  // not divided by S
  Sum Db(std::int64_t i) const;
  bool alpha_comes_first() const;

 private:
  using Values = std::vector<float>;
  const Values& W() const;
  const Values& Of(std::optional<Values>& kept, const Tensor& tensor) const;
  const Values& ScaledDy() const;
  // The input row (axis 0) or column of an output place and a tap; false: outside.
  bool InputPixel(std::int64_t o, std::int64_t k, int axis, std::int64_t size,
                  std::int64_t& i) const;
  std::size_t WIndex(std::int64_t o, std::int64_t c, std::int64_t kh, std::int64_t kw) const;
  // The sums of a convolution from images of shape `large` to those of shape `small`: value i of
  // its output, of its data gradient and of its weight gradient.
  Sum Slide(const Values& images, std::int64_t i) const;
  Sum Spread(const Values& gradients, std::int64_t i) const;
  Sum Correlate(const Values& images, const Values& gradients, std::int64_t i) const;
  const Shape& large() const { return window_.transposed ? spec_.y.shape : spec_.x.shape; }
  const Shape& small() const { return window_.transposed ? spec_.x.shape : spec_.y.shape; }

  const AddressMap& addresses_;
  const MatmulSpec& spec_;
  Window window_;
  Pass refresh_, pass_;
  float alpha_ = 1;
  mutable std::optional<Values> x_, w_, b_, dy_, scaled_dy_;
};

}  // namespace ada::backend::compare
