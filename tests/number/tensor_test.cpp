// Names of shapes and the storage of formats.
#include "number/tensor.h"

#include <doctest/doctest.h>

namespace ada {

TEST_SUITE("cpu") {
  TEST_CASE("shapes") {
    CHECK(ToString(Shape{128, 32, 32, 16}) == "32x32x16");
    CHECK(ToString(Shape{128, 1, 1, 10}) == "10");
    CHECK(ToString(Shape{1, 1, 4, 2}) == "1x4x2");
    CHECK(Shape{2, 3, 4, 5}.numel() == 120);
    CHECK(Shape{2, 3, 4, 5}.per_image() == 60);
    CHECK(Shape{}.numel() == 0);
  }

  TEST_CASE("every value of a format fits its storage") {
    struct {
      NumberFormat format;
      Storage want;
    } const table[] = {
        {kFp32, Storage::kF32},
        {kFp16, Storage::kF16},
        {kBf16, Storage::kBF16},
        {{5, 2, 15, true}, Storage::kF16},
        {{4, 3, 7, true}, Storage::kF16},
        {{8, 1, 127, true}, Storage::kBF16},
        {{6, 5, 31, true}, Storage::kBF16},
        {{6, 9, 31, true}, Storage::kF32},   // wider than either
        {{5, 10, 16, true}, Storage::kF32},  // its subnormals reach below fp16's
        {{8, 8, 127, true}, Storage::kF32},
        {kCb16, Storage::kF32},
        {kFp8E4M3, Storage::kF16},
        {{4, 3, 11, false, true, false}, Storage::kF16},
        {{2, 1, 1, false, false}, Storage::kF16},
        {{5, 10, 15, true, true, true, true}, Storage::kF16},  // saturating
        {{5, 10, 15, false}, Storage::kF32},                   // its top exponent holds numbers
        {{8, 7, 127, true, true, true, true}, Storage::kBF16},
        {{8, 0, 127, false, true, true, true, false}, Storage::kBF16},
    };
    for (const auto& row : table) {
      CAPTURE(row.format.exponent_bits);
      CAPTURE(row.format.mantissa_bits);
      CHECK(StorageFor(row.format) == row.want);
    }
    CHECK(Tensor{{2, 1, 1, 3}, kFp16, Storage::kF16, nullptr}.bytes() == 12);
    CHECK_FALSE(static_cast<bool>(Tensor{}));
  }
}

}  // namespace ada
