// `ada-train inspect` on files made here: counts and scales against values worked out by hand, and
// what it says about files that are not as they should be.
#include <cmath>
#include <string>
#include <vector>

#include "sanitizer.h"
#include "study/inspected.h"

namespace ada::testing {
namespace {

const std::string kCounts =
    "tensor,format,scale,numel,zeros,underflow,underflow_pct_nonzero,underflow_pct_numel,subnormal,"
    "overflow,inf,nan,min_abs,max_abs,mean,std,l2,range_log2";
const std::string kScales =
    "layer,method,fan,scale_in,unbound,bound,pow2,alpha,scale_out,limit,error";

TEST_SUITE("cpu") {
  TEST_CASE("counts: what fp16 loses of every float type, integers left out") {
    // 0x1p-25 is half the smallest subnormal (a tie: to zero), 65520 the first that overflows.
    const std::vector<double> wide = {1, 0x1p-25, 0x1p-24, -65519, 65520, 0, -0.0, 1e-30};
    const std::vector<float> narrow(wide.begin(), wide.end());
    const Outcome o =
        Inspect({{"d", "F64", {8}, BytesOfValues(wide)},
                 F32("f", {2, 4}, narrow),
                 F32("bad", {4}, {kInf, -kInf, kNan, 2}),
                 {"i", "I32", {2}, std::string(8, 'x')},
                 {"h", "F16", {3}, BytesOfValues<std::uint16_t>({0x3c00, 0x8001, 0x7c00})},
                 {"b", "BF16", {3}, BytesOfValues<std::uint16_t>({0x3f80, 0xc780, 0x0001})},
                 {"e4", "F8_E4M3", {5}, std::string("\x00\x81\x38\x7e\x7f", 5)},
                 {"e5", "F8_E5M2", {4}, std::string("\x01\xbc\x7b\xfc", 4)},
                 F32("a,\"b\"", {}, {4}),
                 F32("none", {0, 3}, {})},
                {"--csv", "counts"});
    ADA_REQUIRE_EXIT(o, 0);
    CHECK(o.err.empty());
    const std::vector<std::string> lines = Lines(o.out);
    REQUIRE(lines.size() == 10);
    CHECK(lines[0] == kCounts);
    const std::string both =
        ",fp16,1,8,2,2,33.3333333,25,1,1,0,0,1e-30,65520,0.250000011,32759.75,92658.";
    for (const std::size_t line : {1, 2})
      CHECK(lines[line].substr(0, both.size() + 1) == (line == 1 ? "d" : "f") + both);
    CHECK(lines[3].substr(0, 30) == "bad,fp16,1,4,0,0,0,0,0,0,2,1,2");
    CHECK(lines[4] == "h,fp16,1,3,0,0,0,0,1,0,1,0,5.96046448e-08,1,inf,nan,inf,24");
    CHECK(lines[5].substr(0, 36) == "b,fp16,1,3,0,1,33.3333333,33.3333333");
    CHECK(lines[6].substr(0, 41) == "e4,fp16,1,5,1,0,0,0,0,0,0,1,0.001953125,4");
    CHECK(lines[7] == "e5,fp16,1,4,0,0,0,0,1,0,1,0,1.52587891e-05,57344,-inf,nan,inf,31.8073549");
    CHECK(lines[8] == "\"a,\"\"b\"\"\",fp16,1,1,0,0,0,0,0,0,0,0,4,4,4,0,4,0");
    CHECK(lines[9] == "none,fp16,1,0,0,0,,,0,0,0,0,,0,0,0,0,");
  }

  // 1e300 and 1e-300 are numbers, not inf and zero: only fp16 loses them.
  TEST_CASE("counts: F64 is rounded once; a NaN does not hide the largest number") {
    const std::vector<double> wide = {
        1 + 0x1p-11 + 0x1p-40, 0x1p-25 * (1 + 0x1p-50), 65520 - 1e-6, 1e-300, 1e300, NAN};
    const Outcome o =
        Inspect({{"d", "F64", {6}, BytesOfValues(wide)}}, {"--csv", "counts", "--format", "fp16"});
    ADA_REQUIRE_EXIT(o, 0);
    CHECK(Lines(o.out)[1].substr(0, 55) ==
          "d,fp16,1,6,0,1,16.6666667,16.6666667,1,1,0,1,1e-300,1e+");
    const Outcome fine =
        Inspect({{"d", "F64", {6}, BytesOfValues(wide)}}, {"--csv", "counts", "--format", "fp32"});
    ADA_REQUIRE_EXIT(fine, 0);
    CHECK(Contains(fine.out, "d,fp32,1,6,0,1,16.6666667,16.6666667,0,1,0,1,1e-300,1e+300,"));
  }

  // Codes of the OCP Microscaling formats, and a type that is not known.
  TEST_CASE("counts: codes of 4 and 6 bits, scales, other types") {
    const std::vector<RawTensor> tensors = {
        {"s", "F8_E8M0", {3}, std::string("\x7f\x80\xff", 3)},     // 1, 2, NaN
        {"four", "F4", {2, 2}, "\x72\x9f"},                        // 1, 6, -6, -0.5
        {"e2m3", "F6_E2M3", {4}, std::string("\x5f\x10\x80", 3)},  // 7.5, 0.125, 0.125, -0
        {"e3m2", "F6_E3M2", {4}, std::string("\x1f\xfc\x07", 3)},  // 28, -2, -28, 0.0625
        {"c", "C64", {1}, "complexx"}};
    const Outcome o = Inspect(tensors, {"--csv", "counts", "--format", "fp32"});
    ADA_REQUIRE_EXIT(o, 0);
    const std::vector<std::string> lines = Lines(o.out);
    REQUIRE(lines.size() == 5);
    CHECK(lines[1].substr(0, 30) == "s,fp32,1,3,0,0,0,0,0,0,0,1,1,2");
    CHECK(lines[2] == "four,fp32,1,4,0,0,0,0,0,0,0,0,0.5,6,0.125,4.27748466,8.55862138,3.5849625");
    CHECK(lines[3].substr(0, 42) == "e2m3,fp32,1,4,1,0,0,0,0,0,0,0,0.125,7.5,1.");
    CHECK(lines[4].substr(0, 40) == "e3m2,fp32,1,4,0,0,0,0,0,0,0,0,0.0625,28,");
    const Outcome text = Inspect(tensors, {"--format", "fp32"});
    CHECK(Contains(text.out, "c  C64 [1]  skipped: no float tensor"));
  }

  TEST_CASE("counts: formats, globs, and the scale that gradients carry") {
    const std::vector<RawTensor> tensors = {F32("l.dy", {1, 4}, {8, -8, 0x1p-20f, 480}),
                                            F32("l.w", {4, 1}, {8, -8, 0x1p-20f, 480})};
    const Outcome o = Inspect(tensors, {"--csv", "counts", "--scale-in", "8", "--tensors", "l.*",
                                        "--format", "fp8_e4m3"});
    ADA_REQUIRE_EXIT(o, 0);
    const std::vector<std::string> lines = Lines(o.out);
    REQUIRE(lines.size() == 3);
    // Rounded as they are, shown without S: dy's smallest is 2^-23.
    CHECK(lines[1].substr(0, 55) == "l.dy,fp8_e4m3,8,4,0,1,25,25,0,1,0,0,1.1920929e-07,60,15");
    CHECK(lines[2].substr(0, 56) == "l.w,fp8_e4m3,1,4,0,1,25,25,0,1,0,0,9.53674316e-07,480,12");
    const Outcome map = Inspect(
        tensors, {"--csv", "counts", "--tensors", "*.w", "--format", "{exponent: 5, mantissa: 4}"});
    ADA_REQUIRE_EXIT(map, 0);
    REQUIRE(Lines(map.out).size() == 2);
    CHECK(Contains(map.out, "l.w,\"{exponent: 5, mantissa: 4"));
  }

  TEST_CASE("scales: kinds of layers by the rank of w, methods, a constant where it is set") {
    // |dy| = 2^-20, |w| = 2^-4 everywhere, so that every extreme is known.
    const float g = 0x1p-20f, v = 0x1p-4f;
    const std::vector<RawTensor> tensors = {
        F32("fc.dy", {2, 2}, {g, -g, g, g}),
        F32("fc.w", {2, 3}, {v, v, v, v, v, -v}),
        F32("conv.dy", {1, 2, 1, 2}, {g, -g, 0, g}),
        F32("conv.w", {2, 1, 2, 2}, {v, v, v, v, v, v, v, v}),
        F32("cast.dy", {4}, {g, -g, g, 0}),
        F32("bn.dy", {2, 2}, {g, g, g, g}),
        F32("bn.w", {2}, {1, 1}),
    };
    const Outcome all = Inspect(tensors, {"--csv", "scales", "--scale-in", "2"});
    ADA_REQUIRE_EXIT(all, 0);
    CHECK(Contains(all.err, "bn.w"));
    const std::vector<std::string> lines = Lines(all.out);
    REQUIRE(lines.size() == 13);
    CHECK(lines[0] == kScales);
    // u_min / fan / (2^-20 * 2^-4) = 1 / fan < 1; the product of the extremes gives u_min / R = 1.
    CHECK(lines[3] == "fc,abs_range,2,2,1,,1,1,2,one,");
    CHECK(lines[7] == "conv,abs_range,8,2,1,,1,1,2,one,");
    CHECK(lines[8] == "conv,element_wise_range,8,2,1,,1,1,2,one,");
    CHECK(lines[11] == "cast,abs_range,1,2,1,,1,1,2,one,");

    const Outcome one =
        Inspect(tensors, {"--csv", "scales", "--tensors", "f*", "--set", "scaling.method=abs_range",
                          "scaling.u_min=1e-3", "scaling.power_of_two=false"});
    ADA_REQUIRE_EXIT(one, 0);
    REQUIRE(Lines(one.out).size() == 2);
    CHECK(Lines(one.out)[1] ==
          "fc,abs_range,2,1,8388.608,,,8388.6083984375,8388.6083984375,target,");

    const Outcome fixed = Inspect(tensors, {"--csv", "scales", "--tensors", "f*", "--set",
                                            "scaling.scale=3", "--scale-in", "5"});
    ADA_REQUIRE_EXIT(fixed, 0);
    REQUIRE(Lines(fixed.out).size() == 6);
    CHECK(Lines(fixed.out)[5] == "fc,fixed,2,5,3,,2,2,10,fixed,");
    const Outcome by_layer =
        Inspect(tensors, {"--csv", "scales", "--set", "scaling.method=abs_range", "--set",
                          "scaling.layers=[{match: conv, method: fixed, scale: 8}]"});
    ADA_REQUIRE_EXIT(by_layer, 0);
    REQUIRE(Lines(by_layer.out).size() == 4);
    CHECK(Lines(by_layer.out)[2] == "conv,fixed,8,1,8,,8,8,8,fixed,");
  }

  TEST_CASE("scales: exact_range looks at NAME.dx") {
    // Half of the values lie at 2^-30: below 2^-25 they are lost, times 2^5 they are kept.
    const std::vector<RawTensor> tensors = {F32("fc.dy", {1, 1}, {1}), F32("fc.w", {1, 2}, {1, 1}),
                                            F32("fc.dx", {1, 2}, {0x1p-30f, 0x1p-3f})};
    const Outcome o = Inspect(tensors, {"--csv", "scales", "--set", "scaling.method=exact_range"});
    ADA_REQUIRE_EXIT(o, 0);
    REQUIRE(Lines(o.out).size() == 2);
    CHECK(Lines(o.out)[1] == "fc,exact_range,1,1,32,,32,32,32,target,");
    const Outcome capped =
        Inspect({tensors[0], tensors[1], F32("fc.dx", {1, 2}, {0x1p-30f, 0x1p10f})},
                {"--csv", "scales", "--set", "scaling.method=exact_range"});
    REQUIRE(Lines(capped.out).size() == 2);
    CHECK(Lines(capped.out)[1] == "fc,exact_range,1,1,2,,2,2,2,cap,");  // 65504 / 2^4 / 2^10
    const Outcome bad = Inspect({tensors[0], tensors[1], F32("fc.dx", {1, 2}, {1, kInf})},
                                {"--csv", "scales", "--set", "scaling.method=exact_range"});
    REQUIRE(Lines(bad.out).size() == 2);
    CHECK(Lines(bad.out)[1] == "fc,exact_range,1,1,,,,1,1,nonfinite,");
    const Outcome missing = Inspect({tensors[0], tensors[1]},
                                    {"--csv", "scales", "--set", "scaling.method=exact_range"});
    ADA_CHECK_EXIT(missing, 0);
    CHECK(missing.out == kScales + "\n");
    CHECK(Contains(missing.err, "'fc': exact_range needs its dx"));
  }

  TEST_CASE("scales: gradients that are not finite, ours and the authors' exceptions") {
    const std::vector<RawTensor> tensors = {F32("fc.dy", {1, 2}, {1, kNan}),
                                            F32("fc.w", {2, 1}, {1, 1})};
    const Outcome ours = Inspect(tensors, {"--csv", "scales"});
    ADA_REQUIRE_EXIT(ours, 0);
    REQUIRE(Lines(ours.out).size() == 5);
    for (std::size_t i = 1; i < 5; ++i)
      CHECK(Contains(Lines(ours.out)[i], ",2,1,,,,1,1,nonfinite,"));
    const Outcome theirs = Inspect(tensors, {"--csv", "scales", "--set", "scaling.reference=true"});
    ADA_REQUIRE_EXIT(theirs, 0);
    REQUIRE(Lines(theirs.out).size() == 5);
    CHECK(Contains(theirs.out, "fc,approx_range,2,1,nan,,,,,,"));
    CHECK(Contains(theirs.out, "fc,abs_range,2,1,,,,,,,"));
    for (const std::string& line : Lines(theirs.out))
      CHECK(line.back() != ',');  // every row has an error
  }

  TEST_CASE("shapes that do not fit, and weights that are no floats, name both tensors") {
    const RawTensor fc = F32("fc.w", {2, 3}, {1, 1, 1, 1, 1, 1});
    const std::vector<std::vector<RawTensor>> table = {
        {F32("fc.dy", {2, 3}, {1, 1, 1, 1, 1, 1}), fc},
        {F32("fc.dy", {2}, {1, 1}), fc},
        {F32("fc.dy", {1, 1, 2}, {1, 1}), F32("fc.w", {1, 1, 2, 1}, {1, 1})},
        {F32("fc.dy", {1, 2, 1, 1}, {1, 1}), F32("fc.w", {1, 2, 1, 1}, {1, 1})},
        {F32("fc.dy", {1, 2}, {1, 1}), {"fc.w", "I8", {2, 2}, "abcd"}},
        {F32("fc.dy", {2, 0}, {}), F32("fc.w", {0, 2}, {})},
    };
    for (const std::vector<RawTensor>& tensors : table) {
      const Outcome o = Inspect(tensors, {"--csv", "scales"});
      ADA_CHECK_EXIT(o, 3);
      for (const char* part : {"a.safetensors: byte ", "'fc.dy' ", "'fc.w' ", "do not fit"})
        CHECK(Contains(o.err, part));
    }
  }

  TEST_CASE("an empty tensor of a giant shape needs no memory") {
    const std::int64_t giant = std::int64_t{1} << 50;
    const Outcome o =
        Inspect({F32("fc.dy", {0, giant}, {}), F32("fc.w", {giant, 0}, {})}, {"--csv", "scales"});
    ADA_REQUIRE_EXIT(o, 0);
    CHECK(Lines(o.out).size() == 5);
  }

  TEST_CASE("bad files: exit code 3, the file and the place, no large allocation") {
    const std::string good = TensorFile({F32("a", {2}, {1, 2}), F32("b", {1}, {3})});
    const auto header = [](const std::string& json, std::size_t data) {
      return WithLength(json.size(), json + std::string(data, '\0'));
    };
    const auto tensor = [](const std::string& dtype, const std::string& shape,
                           const std::string& offsets) {
      return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
             "}";
    };
    struct Bad {
      std::string bytes, says;
    };
    const Bad table[] = {
        {"", "byte 0"},
        {good.substr(0, 5), "byte 5"},
        {good.substr(0, 40), "truncated"},
        {good.substr(0, good.size() - 1), "byte "},
        {good + "x", "byte "},
        {"this is a text file and no tensors are in it", "truncated, or no safetensors file"},
        {WithLength(std::uint64_t{1} << 62, "{}"), "truncated"},
        {WithLength(~std::uint64_t{0}, "{}"), "truncated"},
        {header("[]", 0), "byte 8"},
        {header(R"({"a":{}})", 0), "dtype"},
        {header(R"({"a":)" + tensor("F4", "[3]", "[0,2]") + "}", 2), "no whole bytes"},
        {header(R"({"a":)" + tensor("F32", "[3]", "[0,4]") + "}", 4), "'a'"},
        {header(R"({"a":)" + tensor("F32", "[1]", "[0,4]") + R"(,"b":)" +
                    tensor("F32", "[1]", "[2,6]") + "}",
                6),
         "overlap"},
        {header(R"({"a":)" + tensor("F32", "[1]", "[4,8]") + "}", 8), "byte "},
        {header(R"({"a":)" + tensor("F32", "[4611686018427387904,4]", "[0,4]") + "}", 4), "'a'"},
    };
    const TempFolder folder;
    for (const Bad& bad : table) {
      CAPTURE(bad.says);
      folder.Write("bad.safetensors", bad.bytes);
      for (const Arguments& command :
           {Arguments{"inspect", "bad.safetensors"},
            {"convert", "bad.safetensors", "out.safetensors", "--format", "fp16"}}) {
        const Outcome o = Run(command, folder.path());
        ADA_CHECK_EXIT(o, 3);
        CHECK(o.out.empty());
        CHECK(Contains(o.err, "bad.safetensors: "));
        CHECK(Contains(o.err, bad.says));
        CHECK((kShadowMemory || o.peak_kib < 200'000));
        CHECK(!folder.Has("out.safetensors"));
      }
    }
    for (const char* file : {"missing.safetensors", "."})
      ADA_CHECK_EXIT(Run({"inspect", file}, folder.path()), 3);
  }

  TEST_CASE("usage errors of inspect, convert and replay are exit code 2") {
    struct Wrong {
      Arguments arguments;
      std::string says;
    };
    const Wrong table[] = {
        {{"inspect"}, "FILE"},
        {{"inspect", "a.safetensors", "--csv", "count"}, "counts"},
        {{"inspect", "a.safetensors", "--format", "fp17"}, "fp16"},
        {{"inspect", "a.safetensors", "--scale-in", "0"}, "--scale-in"},
        {{"inspect", "a.safetensors", "--scale-in", "much"}, "--scale-in"},
        {{"inspect", "a.safetensors", "--tensors", "b*"}, "matches none of the 1 tensors"},
        {{"inspect", "a.safetensors", "--set", "scaling.methd=fixed"}, "method"},
        {{"inspect", "a.safetensors", "--set", "scaling.policy=dynamic"}, "adaptive"},
        {{"inspect", "a.safetensors", "--set", "scaling.method=fixed"}, "scale"},
        {{"convert", "a.safetensors", "--format", "fp16"}, "OUT"},
        {{"convert", "a.safetensors", "b.safetensors"}, "--format"},
        {{"convert", "a.safetensors", "b.safetensors", "--format", "fp16", "--scale", "-1"},
         "--scale"},
        {{"convert", "a.safetensors", "b.safetensors", "--format", "fp16", "--scale", "nan"},
         "--scale"},
        {{"replay", "--scaling", "a.yaml"}, "a.yaml: "},
        {{"replay", "--trace", "a.csv"}, "--scaling"},
        {{"replay", "--scaling", "missing.yaml", "--trace", "a.csv"}, "missing.yaml"},
    };
    const TempFolder folder;
    folder.Write("a.safetensors", TensorFile({F32("a", {1}, {1})}));
    for (const Wrong& wrong : table) {
      CAPTURE(wrong.arguments.back());
      const Outcome o = Run(wrong.arguments, folder.path());
      ADA_CHECK_EXIT(o, 2);
      CHECK(Contains(o.err, wrong.says));
      CHECK(o.out.empty());
      CHECK(!folder.Has("b.safetensors"));
    }
    // The file may stand after --set, which takes several values.
    const Outcome behind =
        Run({"inspect", "--csv", "counts", "--set", "scaling.fan=reference", "a.safetensors"},
            folder.path());
    ADA_CHECK_EXIT(behind, 0);
    CHECK(Lines(behind.out).size() == 2);
  }
}

}  // namespace
}  // namespace ada::testing
