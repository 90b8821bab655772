// The one place that knows how oneDNN 2.x (operation descriptors) and 3.x (none) make primitive
// descriptors. Everything else of the two versions that is used here is the same.
#pragma once
#include <dnnl.hpp>

namespace ada::backend::cpu::onednn {

struct ConvolutionShape {
  dnnl::memory::desc x, w, b, y;  // b zero: no bias
  dnnl::memory::dims stride, dilation, pad_before, pad_after;
};

// Scratch memory is the caller's: the library would allocate it for each primitive otherwise.
inline dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

#if DNNL_VERSION_MAJOR >= 3

inline auto ForwardDescriptor(const dnnl::engine& e, dnnl::prop_kind kind,
                              const ConvolutionShape& s) {
  return dnnl::convolution_forward::primitive_desc(e, kind, dnnl::algorithm::convolution_direct,
                                                   s.x, s.w, s.b, s.y, s.stride, s.dilation,
                                                   s.pad_before, s.pad_after, UserScratchpad());
}
inline auto BackwardDataDescriptor(const dnnl::engine& e, const ConvolutionShape& s,
                                   const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_data::primitive_desc(
      e, dnnl::algorithm::convolution_direct, s.x, s.w, s.y, s.stride, s.dilation, s.pad_before,
      s.pad_after, hint, UserScratchpad());
}
inline auto BackwardWeightsDescriptor(const dnnl::engine& e, const ConvolutionShape& s,
                                      const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_weights::primitive_desc(
      e, dnnl::algorithm::convolution_direct, s.x, s.w, s.b, s.y, s.stride, s.dilation,
      s.pad_before, s.pad_after, hint, UserScratchpad());
}
inline auto ForwardDescriptor(const dnnl::engine& e, dnnl::prop_kind kind,
                              const dnnl::memory::desc& x, const dnnl::memory::desc& w,
                              const dnnl::memory::desc& b, const dnnl::memory::desc& y) {
  return dnnl::inner_product_forward::primitive_desc(e, kind, x, w, b, y, UserScratchpad());
}
inline auto BackwardDataDescriptor(const dnnl::engine& e, const dnnl::memory::desc& x,
                                   const dnnl::memory::desc& w, const dnnl::memory::desc& y,
                                   const dnnl::inner_product_forward::primitive_desc& hint) {
  return dnnl::inner_product_backward_data::primitive_desc(e, x, w, y, hint, UserScratchpad());
}
inline auto BackwardWeightsDescriptor(const dnnl::engine& e, const dnnl::memory::desc& x,
                                      const dnnl::memory::desc& w, const dnnl::memory::desc& b,
                                      const dnnl::memory::desc& y,
                                      const dnnl::inner_product_forward::primitive_desc& hint) {
  return dnnl::inner_product_backward_weights::primitive_desc(e, x, w, b, y, hint,
                                                              UserScratchpad());
}
inline auto MatmulDescriptor(const dnnl::engine& e, const dnnl::memory::desc& a,
                             const dnnl::memory::desc& b, const dnnl::memory::desc& y) {
  return dnnl::matmul::primitive_desc(e, a, b, y, UserScratchpad());
}

#else

inline auto ForwardDescriptor(const dnnl::engine& e, dnnl::prop_kind kind,
                              const ConvolutionShape& s) {
  const dnnl::convolution_forward::desc operation(kind, dnnl::algorithm::convolution_direct, s.x,
                                                  s.w, s.b, s.y, s.stride, s.dilation, s.pad_before,
                                                  s.pad_after);
  return dnnl::convolution_forward::primitive_desc(operation, UserScratchpad(), e);
}
inline auto BackwardDataDescriptor(const dnnl::engine& e, const ConvolutionShape& s,
                                   const dnnl::convolution_forward::primitive_desc& hint) {
  const dnnl::convolution_backward_data::desc operation(dnnl::algorithm::convolution_direct, s.x,
                                                        s.w, s.y, s.stride, s.dilation,
                                                        s.pad_before, s.pad_after);
  return dnnl::convolution_backward_data::primitive_desc(operation, UserScratchpad(), e, hint);
}
inline auto BackwardWeightsDescriptor(const dnnl::engine& e, const ConvolutionShape& s,
                                      const dnnl::convolution_forward::primitive_desc& hint) {
  const dnnl::convolution_backward_weights::desc operation(dnnl::algorithm::convolution_direct, s.x,
                                                           s.w, s.b, s.y, s.stride, s.dilation,
                                                           s.pad_before, s.pad_after);
  return dnnl::convolution_backward_weights::primitive_desc(operation, UserScratchpad(), e, hint);
}
inline auto ForwardDescriptor(const dnnl::engine& e, dnnl::prop_kind kind,
                              const dnnl::memory::desc& x, const dnnl::memory::desc& w,
                              const dnnl::memory::desc& b, const dnnl::memory::desc& y) {
  const dnnl::inner_product_forward::desc operation(kind, x, w, b, y);
  return dnnl::inner_product_forward::primitive_desc(operation, UserScratchpad(), e);
}
inline auto BackwardDataDescriptor(const dnnl::engine& e, const dnnl::memory::desc& x,
                                   const dnnl::memory::desc& w, const dnnl::memory::desc& y,
                                   const dnnl::inner_product_forward::primitive_desc& hint) {
  const dnnl::inner_product_backward_data::desc operation(x, w, y);
  return dnnl::inner_product_backward_data::primitive_desc(operation, UserScratchpad(), e, hint);
}
inline auto BackwardWeightsDescriptor(const dnnl::engine& e, const dnnl::memory::desc& x,
                                      const dnnl::memory::desc& w, const dnnl::memory::desc& b,
                                      const dnnl::memory::desc& y,
                                      const dnnl::inner_product_forward::primitive_desc& hint) {
  const dnnl::inner_product_backward_weights::desc operation(x, w, b, y);
  return dnnl::inner_product_backward_weights::primitive_desc(operation, UserScratchpad(), e, hint);
}
inline auto MatmulDescriptor(const dnnl::engine& e, const dnnl::memory::desc& a,
                             const dnnl::memory::desc& b, const dnnl::memory::desc& y) {
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, y), UserScratchpad(), e);
}

#endif

}  // namespace ada::backend::cpu::onednn
