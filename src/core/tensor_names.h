// The names of a layer's tensors in logs: y, w, dx, dw, dy, and dx2, the gradient by the second
// input of a layer that rounds one for each.
#pragma once
#include <string_view>

namespace ada {

inline bool IsDx(std::string_view tensor) { return tensor == "dx" || tensor == "dx2"; }
// Whether it carries S.
inline bool CarriesS(std::string_view tensor) { return IsDx(tensor) || tensor == "dy"; }
// The word of `log.statistics` that it is counted under.
inline std::string_view StatisticOf(std::string_view tensor) {
  return tensor == "dx2" ? "dx" : tensor;
}

}  // namespace ada
