// Functions of one value and their slopes, written once for every backend, using the functions of
// elementary.h; results are rounded to fp32 once. A function that has the name of one in PyTorch
// computes the same, also at its corners.
//
// A function is a struct of plain data (its parameters) with kKind, Value(x), and either Slope(x),
// which is multiplied with dy in fp32, or Dx(x, dy), which returns dy or 0. All are inlined,
// because kernels for one instruction set must not leave a copy that others might call.
#pragma once
#include <tuple>
#include <type_traits>

#include "backend/elementary.h"
#include "number/host_device.h"

namespace ada::backend {

// 1 / (1 + e^-x), in double.
ADA_HOST_DEVICE static inline double LogisticOf(double x) { return 1 / (1 + Exponential(-x)); }

// The same and its slope, with one exponential. The slope subtracts no numbers near 1.
struct Logistic {
  double value, slope;
};
ADA_HOST_DEVICE static inline Logistic LogisticAndSlope(double x) {
  const double e = Exponential(x < 0 ? x : -x), high = 1 / (1 + e), low = e * high;
  return {x < 0 ? low : high, low * high};
}

#define ADA_ACTIVATION [[gnu::always_inline]] ADA_HOST_DEVICE

struct Sigmoid {
  static constexpr char kKind[] = "sigmoid";
  ADA_ACTIVATION float Value(float x) const {
    return static_cast<float>(LogisticOf(static_cast<double>(x)));
  }
  ADA_ACTIVATION float Slope(float x) const {
    return static_cast<float>(LogisticAndSlope(static_cast<double>(x)).slope);
  }
};

// x / (1 + e^-x), also called swish.
struct Silu {
  static constexpr char kKind[] = "silu";
  ADA_ACTIVATION float Value(float x) const {
    const auto wide = static_cast<double>(x);
    return static_cast<float>(wide * LogisticOf(wide));
  }
  ADA_ACTIVATION float Slope(float x) const {
    const auto wide = static_cast<double>(x);
    const Logistic logistic = LogisticAndSlope(wide);
    return static_cast<float>(logistic.value + Held(wide) * logistic.slope);
  }
};

// (1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x; near 0 the first terms of its series.
struct Tanh {
  static constexpr char kKind[] = "tanh";
  ADA_ACTIVATION float Value(float x) const {
    const auto wide = static_cast<double>(x), size = wide < 0 ? -wide : wide;
    const double e = Exponential(-2 * size), far = (1 - e) / (1 + e);
    const double square = wide * wide;
    const double series =
        1 -
        square * (1.0 / 3 - square * (2.0 / 15 - square * (17.0 / 315 - square * (62.0 / 2835))));
    return static_cast<float>(size < 0x1p-5 ? wide * series : wide < 0 ? -far : far);
  }
  ADA_ACTIVATION float Slope(float x) const {
    return static_cast<float>(4 * LogisticAndSlope(2 * static_cast<double>(x)).slope);
  }
};

// x clamped to [min, max]; dy passes if x is inside. NaN is kept.
struct Hardtanh {
  static constexpr char kKind[] = "hardtanh";
  float min = -1, max = 1;
  ADA_ACTIVATION float Value(float x) const { return x < min ? min : x > max ? max : x; }
  ADA_ACTIVATION float Dx(float x, float dy) const { return x <= min || x >= max ? 0.0f : dy; }
};
struct Relu6 {
  static constexpr char kKind[] = "relu6";
  ADA_ACTIVATION float Value(float x) const { return x <= 0 ? 0.0f : x > 6 ? 6.0f : x; }
  ADA_ACTIVATION float Dx(float x, float dy) const { return x <= 0 || x >= 6 ? 0.0f : dy; }
};

struct LeakyRelu {
  static constexpr char kKind[] = "leaky_relu";
  float slope = 0.01f;
  ADA_ACTIVATION float Value(float x) const { return x > 0 ? x : x * slope; }
  ADA_ACTIVATION float Dx(float x, float dy) const { return x > 0 ? dy : dy * slope; }
};

// min(max(x + 3, 0), 6) / 6. A NaN stays.
ADA_ACTIVATION static inline double HardGate(double x) {
  const double lifted = x + 3;
  return (lifted < 0 ? 0 : lifted > 6 ? 6 : lifted) / 6;
}
struct Hardsigmoid {
  static constexpr char kKind[] = "hardsigmoid";
  ADA_ACTIVATION float Value(float x) const {
    return static_cast<float>(HardGate(static_cast<double>(x)));
  }
  ADA_ACTIVATION float Dx(float x, float dy) const {
    return x > -3 && x < 3 ? static_cast<float>(static_cast<double>(dy) / 6) : 0.0f;
  }
};
struct Hardswish {
  static constexpr char kKind[] = "hardswish";
  ADA_ACTIVATION float Value(float x) const {
    const auto wide = static_cast<double>(x);
    return static_cast<float>(wide * HardGate(wide));
  }
  ADA_ACTIVATION float Dx(float x, float dy) const {
    const auto inside = static_cast<float>(static_cast<double>(x) / 3 + 0.5);
    return x <= -3 ? 0.0f : x < 3 ? dy * inside : dy;
  }
};

// The probability that a standard normal value is above t >= 0, divided by e^(-t^2 / 2) (Mills'
// ratio divided by sqrt(2 pi)). With u = 5 / (5 + t) it is u times a polynomial that interpolates
// it at the Chebyshev nodes of u in [0, 1]; the error is below 2^-45.
ADA_ACTIVATION static inline double NormalTail(double t) {
  constexpr int kTerms = 10;
  constexpr double kEven[kTerms] = {
      0x1.3b0fbcb4c77bep-3,   0x1.95c11dc6c7004p-4,   0x1.0e5e8ee4ef985p-5,  0x1.1090aabc24166p-8,
      -0x1.4ea6f2c9725ebp-13, -0x1.8e5c62dfe48a0p-17, 0x1.beb64eca142b2p-19, -0x1.228d0880c4379p-21,
      0x1.401993427d01dp-24,  -0x1.ce1256bf976fcp-28};
  constexpr double kOdd[kTerms] = {0x1.108a698eca711p-3,   0x1.00d8ab2d02459p-4,
                                   0x1.c4f9d55dfa36ep-7,   0x1.39e0cd00e2d5ap-11,
                                   -0x1.c916925119f83p-14, 0x1.4dd155b94bd6ep-17,
                                   -0x1.a7d5480472a54p-21, 0x1.027c4cfe448a8p-24,
                                   -0x1.fe8e37ab4bb5ap-29, 0};
  const double u = 5 / (5 + t), v = 2 * u - 1, square = v * v;
  double even = 0, odd = 0;
  for (int k = kTerms - 1; k >= 0; --k) {
    even = even * square + kEven[k];
    odd = odd * square + kOdd[k];
  }
  return u * (even + v * odd);
}
// x times the probability that a standard normal value is below x.
struct Gelu {
  static constexpr char kKind[] = "gelu";
  ADA_ACTIVATION float Value(float x) const {
    const auto wide = static_cast<double>(x);
    return static_cast<float>(wide * ShareBelow(wide, Density(wide)));
  }
  ADA_ACTIVATION float Slope(float x) const {
    const auto wide = static_cast<double>(x);
    const double e = Density(wide);
    return static_cast<float>(ShareBelow(wide, e) + Held(wide) * e * 0x1.9884533d43651p-2);
  }
  // Times sqrt(2 pi).
  ADA_ACTIVATION static double Density(double x) { return Exponential(-x * x / 2); }
  ADA_ACTIVATION static double ShareBelow(double x, double density) {
    const double tail = density * NormalTail(x < 0 ? -x : x);
    return x < 0 ? tail : 1 - tail;
  }
};
// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which is x times the logistic function of
// twice that.
struct GeluTanh {
  static constexpr char kKind[] = "gelu";
  ADA_ACTIVATION float Value(float x) const {
    const auto wide = static_cast<double>(x);
    return static_cast<float>(wide * LogisticOf(Inner(wide)));
  }
  ADA_ACTIVATION float Slope(float x) const {
    const double wide = Held(static_cast<double>(x)), inner = Inner(wide);
    const double slope = kFactor * (1 + 3 * kCubic * wide * wide);
    const Logistic logistic = LogisticAndSlope(inner);
    return static_cast<float>(logistic.value + wide * slope * logistic.slope);
  }
  static constexpr double kFactor = 0x1.9884533d43651p+0;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
  ADA_ACTIVATION static double Inner(double x) { return kFactor * (x + kCubic * x * x * x); }
};

// ln(1 + e^(beta x)) / beta; above the threshold of beta x it is x itself, as in PyTorch.
struct Softplus {
  static constexpr char kKind[] = "softplus";
  float beta = 1, threshold = 20;
  ADA_ACTIVATION float Value(float x) const {
    const double factor = beta, wide = factor * static_cast<double>(x);
    const double rest = LogarithmOfOnePlus(Exponential(wide < 0 ? wide : -wide));
    const auto soft = static_cast<float>(((wide > 0 ? wide : 0) + rest) / factor);
    return wide > static_cast<double>(threshold) ? x : soft;
  }
  ADA_ACTIVATION float Slope(float x) const {
    const double wide = static_cast<double>(beta) * static_cast<double>(x);
    const auto slope = static_cast<float>(LogisticOf(wide));
    return wide > static_cast<double>(threshold) ? 1.0f : slope;
  }
};

// x where it is positive, else alpha (e^x - 1).
struct Elu {
  static constexpr char kKind[] = "elu";
  float alpha = 1;
  ADA_ACTIVATION float Value(float x) const {
    const double below = ExponentialLessOne(static_cast<double>(x > 0 ? 0.0f : x));
    return x > 0 ? x : static_cast<float>(static_cast<double>(alpha) * below);
  }
  ADA_ACTIVATION float Slope(float x) const {
    const double power = Exponential(static_cast<double>(x > 0 ? 0.0f : x));
    return x > 0 ? 1.0f : static_cast<float>(static_cast<double>(alpha) * power);
  }
};

template <class Function>
concept HasSlope = requires(const Function& function) {
  function.Slope(0.0f);
};
// dy times the slope at x.
template <class Function>
ADA_ACTIVATION static inline float DxOf(const Function& function, float x, float dy) {
  if constexpr (HasSlope<Function>)
    return dy * function.Slope(x);
  else
    return function.Dx(x, dy);
}
// Whether a value of dx is either the value of dy or zero.
template <class Function>
inline constexpr bool kPassesDy =
    std::is_same_v<Function, Hardtanh> || std::is_same_v<Function, Relu6>;

// A tuple of Each<Function> for all functions.
template <template <class> class Each>
using ForActivations = std::tuple<Each<Sigmoid>, Each<Silu>, Each<Tanh>, Each<Hardtanh>,
                                  Each<Relu6>, Each<LeakyRelu>, Each<Hardsigmoid>, Each<Hardswish>,
                                  Each<Gelu>, Each<GeluTanh>, Each<Softplus>, Each<Elu>>;

#undef ADA_ACTIVATION

}  // namespace ada::backend
