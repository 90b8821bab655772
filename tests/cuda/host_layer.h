// The spec of one convolution in memory of a HostContext, for tests of what its op asks a library
// of products for.
#pragma once
#include "cuda/host_context.h"
#include "number/number_format.h"

namespace ada::backend::test {

// 1x1, 8 channels; all but masters and dw in `format`. Only statistics of y and dx are kept.
struct HostLayer : HostContext {
  HostLayer(cuda::Matmuls& matmuls, const NumberFormat& format) : HostContext(matmuls) {
    const Shape image = {2, 4, 4, 8}, weights = {8, 1, 1, 8};
    spec.layer = "conv1";
    spec.x = Make(image, format), spec.y = Make(image, format);
    spec.w = Make(weights, kFp32), spec.dw = Make(weights, kFp32);
    spec.dy.tensor = Make(image, format), spec.dx.tensor = Make(image, format);
    spec.w_format = format;
    spec.y_stats = Share<TensorStats>(), spec.dx.stats = Share<TensorStats>();
    spec.dy.scale = Share<float>(), spec.dx.scale = Share<float>();
    *spec.dy.scale = 1;
    spec.scaler = Share<scaling::LayerScaler>();
    shared.Host(spec.scaler)->rule.method = scaling::LayerMethod::kFixed;
  }
  Tensor Make(const Shape& shape, const NumberFormat& format) {
    Tensor t{shape, format, StorageFor(format), nullptr};
    t.data = memory.AllocateZeroed(t.bytes());
    return t;
  }
  template <class T>
  T* Share() {
    return reinterpret_cast<T*>(shared.Allocate(sizeof(T)).backend);
  }
  Conv2dSpec spec;
};

}  // namespace ada::backend::test
