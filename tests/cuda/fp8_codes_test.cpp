// Products of fp8 operands as codes of one byte: the codes, packing, and layers whose matmuls read
// them against the same layers emulated. On the host executor.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cuda/kernels/operands.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "cuda/matmul_lab.h"
#include "error.h"
#include "run/assemble/assemble.h"

namespace ada::backend::test {
namespace {

using cuda::Fp8;
const std::vector<std::pair<Fp8, NumberFormat>> kFormats = {{Fp8::kE4M3, kFp8E4M3},
                                                            {Fp8::kE5M2, kFp8E5M2}};

// The value of a code by its fields.
double ValueOf(const NumberFormat& f, int code) {
  const int mantissa_codes = 1 << f.mantissa_bits, magnitude = code & 0x7f;
  const int exponent = magnitude / mantissa_codes, mantissa = magnitude % mantissa_codes;
  const int top = (1 << f.exponent_bits) - 1;
  const double sign = code > 0x7f ? -1 : 1;
  if (f.has_inf && exponent == top) return mantissa == 0 ? sign * INFINITY : NAN;
  if (!f.has_inf && magnitude == 0x7f) return NAN;
  const int fraction = exponent == 0 ? mantissa : mantissa + mantissa_codes;
  return sign * std::ldexp(fraction, std::max(exponent, 1) - f.bias - f.mantissa_bits);
}

// How one layer is run: scales of x, w and dy (0: none); whether x's is known.
struct Scales {
  float x = 0, w = 0, dy = 0;
  bool known = true;
};
struct Result {
  Findings findings;
  std::vector<std::string> names, diagnostics;
  int Packed() const {
    return static_cast<int>(std::count_if(names.begin(), names.end(), [](const std::string& name) {
      return name.find("PackFp8") != std::string::npos;
    }));
  }
};

// `tensor` as one with a per-tensor scale: in fp32, divided by it after rounding. 0: as it is.
void Rescale(Lab& lab, Tensor& tensor, float scale) {
  if (scale == 0) return;
  Values values = lab.Get(tensor);
  for (float& v : values) v = RoundTo(tensor.format, v * scale) / scale;
  const NumberFormat format = tensor.format;
  tensor = lab.Make(tensor.shape, kFp32, values);
  tensor.format = format;
}

Result RunLayer(bool hardware, const MatmulCase& c, const Settings& settings, const Scales& s,
                const NumberFormat& w_format) {
  auto stream = std::make_unique<cuda::HostStream>();
  cuda::HostStream& kernels = *stream;
  DeviceOptions options;
  options.fp8_hardware = hardware;
  Lab lab(cuda::MakeBackendOn(std::move(stream), {"", ""}, options));
  const auto per_tensor_scale = [&](float scale) {
    return scale == 0 ? nullptr : lab.Share(scaling::TensorScaler{scale});
  };
  const Layer layer(lab, c, settings, [&](MatmulSpec& spec) {
    spec.w_format = w_format;
    if (s.known) spec.x_per_tensor_scale = per_tensor_scale(s.x);
    spec.w_style.per_tensor_scale = per_tensor_scale(s.w),
    spec.dy.style.per_tensor_scale = per_tensor_scale(s.dy);
    Rescale(lab, spec.x, s.x), Rescale(lab, spec.dy.tensor, s.dy);
    spec.y = lab.Make(spec.y.shape, kFp32), spec.dx.tensor = lab.Make(spec.x.shape, kFp32);
  });
  kernels.KeepNames();
  Result result;
  for (int step = 0; step < 4; ++step) {
    const Pass pass = PassOf(step % 2 == 0 ? c.x.n : c.x.n - 1);
    lab->Run(1, pass, [&] { layer.Call(pass); });
    layer.Report(pass, result.findings);
  }
  result.names = kernels.TakeNames(), result.diagnostics = lab->Diagnostics();
  return result;
}

MatmulCase Convolution() {
  const std::array<int, 2> one = {1, 1}, three = {3, 3};
  return {"conv", {4, 6, 6, 16}, 16, three, one, one, one, 1, true};
}
Settings Of(const NumberFormat& format) {
  Settings settings;
  settings.format = format;
  return settings;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("fp8 codes: every code of both formats is the value that its bits say, and back") {
    for (const auto& [format, number] : kFormats)
      for (int code = 0; code < 256; ++code) {
        CAPTURE(code);
        const float value = cuda::FromFp8(format, static_cast<std::uint8_t>(code));
        const double want = ValueOf(number, code);
        if (std::isnan(want)) {
          CHECK(std::isnan(value));
          const std::uint8_t packed = cuda::ToFp8(format, value);
          CHECK(std::isnan(ValueOf(number, packed)));
          continue;
        }
        CHECK(static_cast<double>(value) == want);
        CHECK(std::signbit(value) == (code > 0x7f));
        CHECK(static_cast<int>(cuda::ToFp8(format, value)) == code);
      }
  }

  TEST_CASE("fp8 codes: saturated values, and NaN of fp32, have codes") {
    for (const auto& [format, number] : kFormats) {
      NumberFormat full = number;
      full.saturate = true;
      for (const float x : {1e9f, -1e9f, INFINITY}) {
        const float rounded = RoundTo(full, x);
        CHECK(cuda::FromFp8(format, cuda::ToFp8(format, rounded)) == rounded);
      }
      CHECK(std::isnan(cuda::FromFp8(format, cuda::ToFp8(format, RoundTo(number, NAN)))));
      CHECK(std::isnan(cuda::FromFp8(format, cuda::ToFp8(format, -NAN))));
    }
  }

  TEST_CASE("fp8 codes: values that were divided by their scale are packed as they were rounded") {
    for (const auto& [format, number] : kFormats)
      for (float scale : {1.0f, 13.0f, 640.0f, 1.0f / 3, 0x1.fffffep90f, 0x1p-100f}) {
        CAPTURE(scale);
        std::vector<float> stored(256);
        for (int code = 0; code < 256; ++code)
          stored[static_cast<std::size_t>(code)] =
              cuda::FromFp8(format, static_cast<std::uint8_t>(code)) / scale;
        for (const std::int64_t n : {256, 253}) {
          std::vector<std::uint8_t> codes(256, 0x55);
          const cuda::PackFp8 pack{
              {stored.data(), Storage::kF32}, &scale, GridOf(number), format, codes.data(), n};
          for (std::int64_t i = 0; i < (n + 3) / 4; ++i) pack(i);
          for (int code = 0; code < 256; ++code) {
            const std::uint8_t got = codes[static_cast<std::size_t>(code)];
            if (code >= n)
              CHECK(got == 0x55);
            else if (std::isnan(ValueOf(number, code)))
              CHECK(std::isnan(ValueOf(number, got)));
            else
              CHECK(static_cast<int>(got) == code);
          }
        }
      }
  }

  TEST_CASE("fp8 codes: layers whose products read them, as emulated ones where sums are exact") {
    for (const MatmulCase& c : {Convolution(), LinearCase("linear", {7, 1, 1, 64}, 10, true)})
      for (const NumberFormat& format : {kFp8E4M3, kFp8E5M2})
        for (const NumberFormat& w_format : {kFp8E4M3, kFp8E5M2})
          for (const Scales& scales : {Scales{}, Scales{2, 0.5f, 4}, Scales{0, 8, 0}}) {
            CAPTURE(c.name);
            const Result emulated = RunLayer(false, c, Of(format), scales, w_format);
            const Result coded = RunLayer(true, c, Of(format), scales, w_format);
            CheckSame(emulated.findings, coded.findings, true);
            CHECK(emulated.Packed() == 0);
            CHECK(coded.Packed() == 4 * 6);  // four steps, two operands, three products
            CHECK(coded.diagnostics.empty());
          }
  }

  TEST_CASE("fp8 codes: with any scales sums differ from emulated ones by fp32 roundings alone") {
    const Scales scales{13, 100, 3};
    Settings settings = Of(kFp8E4M3);
    settings.measured = false, settings.counted = false;
    const Result emulated = RunLayer(false, Convolution(), settings, scales, kFp8E4M3);
    const Result coded = RunLayer(true, Convolution(), settings, scales, kFp8E4M3);
    for (std::size_t k = 0; k < emulated.findings.entries().size(); ++k) {
      const auto &want = emulated.findings.entries()[k].values,
                 &got = coded.findings.entries()[k].values;
      double most = 0;
      for (const double v : want) most = std::max(most, std::fabs(v));
      for (std::size_t i = 0; i < want.size(); ++i)
        CHECK(std::fabs(want[i] - got[i]) <= 1e-6 * most);
    }
  }

  TEST_CASE("fp8 codes: what is not known to be on the grid is emulated, with a diagnostic") {
    const Scales scales{2, 0, 0, false};
    const Result unknown = RunLayer(true, Convolution(), Of(kFp8E4M3), scales, kFp8E4M3);
    CHECK(unknown.Packed() == 4 * 2);  // of the data gradient
    REQUIRE(unknown.diagnostics.size() == 2);
    CHECK(unknown.diagnostics[0] ==
          "layer conv: the output of fp8 operands is emulated: the scale of one of them is not "
          "known");
    Settings reference = Of(kFp8E5M2);  // alpha * dy is rounded before it is multiplied
    reference.reference = true;
    CHECK(RunLayer(true, Convolution(), reference, {}, kFp8E4M3).Packed() == 4 * 6);
    CHECK(RunLayer(true, Convolution(), reference, {0, 0, 2}, kFp8E4M3).Packed() == 4 * 4);
    const Result mixed = RunLayer(true, Convolution(), Of(kFp16), {}, kFp8E4M3);
    CHECK(mixed.Packed() == 0);
    CHECK(mixed.diagnostics.empty());
  }

  TEST_CASE("fp8 codes: device.fp8: hardware is refused where there is no device") {
    config::DeviceConfig device;
    device.kind = config::DeviceKind::kCpu, device.fp8 = config::Fp8Products::kHardware;
    CHECK_THROWS_WITH_AS(run::MakeBackend(device),
                         "device.fp8: hardware: the CPU has no units for fp8; use device.kind: "
                         "cuda or device.fp8: emulated",
                         DeviceError);
  }
}

}  // namespace ada::backend::test
#endif
