// Random changes of a picture as torchvision makes them on PIL pictures: where a random resized
// crop lies, color jitter, random erasing. What is drawn comes from a source of draws, so that
// recorded draws give recorded results; the arithmetic is that of the originals, fp32 where it is
// fp32 there.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/images/picture.h"
#include "number/random.h"

namespace ada::data {

// A range that is drawn from uniformly; both ends the same: always that.
struct Range {
  double low = 0, high = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// Where draws come from.
class Draws {
 public:
  virtual ~Draws() = default;
  virtual float Uniform(float low, float high) = 0;
  virtual int Below(int n) = 0;  // uniform in 0..n-1
  virtual double Normal() = 0;   // standard normal
};

// Draws of a stream of random words: one word for Uniform, at least one for Below, four for Normal.
class StreamDraws : public Draws {
 public:
  explicit StreamDraws(RandomStream* stream) : stream_(*stream) {}
  float Uniform(float low, float high) override { return stream_.Uniform() * (high - low) + low; }
  int Below(int n) override {
    return static_cast<int>(stream_.Below(static_cast<std::uint32_t>(n)));
  }
  double Normal() override { return stream_.Normal(); }

 private:
  RandomStream& stream_;
};

// torchvision's RandomResizedCrop.get_params: a share of the area and a ratio of width to height,
// the logarithm of which is uniform; after ten that do not fit the largest box in the center whose
// ratio is allowed.
struct RandomCropSpec {
  Range scale{0.08, 1.0}, ratio{3.0 / 4.0, 4.0 / 3.0};
};
Box RandomCropBox(const RandomCropSpec& spec, PictureSize of, Draws* draws);

// torchvision's ColorJitter: each factor is drawn from its range (hue: in turns of the circle,
// -0.5..0.5), and the four are applied in random order, each rounded to bytes as PIL's ImageEnhance
// and its HSV conversion do. A range of nothing but "no change" (1; hue: 0) is left out.
struct ColorJitterSpec {
  Range brightness{1, 1}, contrast{1, 1}, saturation{1, 1}, hue{0, 0};
};
enum class ColorChange : std::uint8_t { kBrightness, kContrast, kSaturation, kHue };
struct ColorJitter {
  std::array<ColorChange, 4> order;
  std::array<std::optional<double>, 4> factor;  // of each ColorChange
};
ColorJitter DrawColorJitter(const ColorJitterSpec& spec, Draws* draws);

// These change a picture of 1 (gray: saturation and hue do nothing) or 3 channels.
void ApplyColorJitter(const ColorJitter& jitter, Picture* picture);
void AdjustBrightness(double factor, Picture* picture);
void AdjustContrast(double factor, Picture* picture);
void AdjustSaturation(double factor, Picture* picture);
void AdjustHue(double factor, Picture* picture);

// torchvision's RandomErasing, on what the network sees: floats after normalizing, where 0 is the
// mean color. Ten boxes are tried; where none is smaller than the picture nothing is erased.
struct RandomErasingSpec {
  double p = 0.5;
  Range scale{0.02, 0.33}, ratio{0.3, 3.3};  // of the area; of height to width
  std::vector<double> value{0};              // one, or one a channel
  bool random_values = false;                // standard normal, each for itself, not `value`
};
std::optional<Box> DrawErasedBox(const RandomErasingSpec& spec, PictureSize of, Draws* draws);
// `image`: [height, width, channels] of `size`; the box lies within it.
void EraseBox(const RandomErasingSpec& spec, const Box& box, PictureSize size, int channels,
              Draws* draws, float* image);

// --- As OpenCV makes them, for ChainerCV's SSD ---

// OpenCV's five interpolations, as its resize computes them on float pictures: half-pixel centers,
// borders repeated, no antialias but in kArea. kCubic and kLanczos4 may leave the range of the
// values.
enum class Interpolation : std::uint8_t {
  kLinear,
  kArea,      // smaller: the mean of what a pixel covers; larger: linear with steps of its own
  kNearest,   // the pixel at floor(x / (to / from))
  kCubic,     // A = -0.75
  kLanczos4,  // eight taps
};

// A picture of 3 channels on a canvas of one color, as made by an expansion, but never stored
// as a whole. The picture must outlive it. Pixels of a `part` outside the picture have the
// color.
struct Canvas {
  const Picture* picture = nullptr;
  PictureSize size;       // of the canvas
  int top = 0, left = 0;  // of the picture on it
  std::array<float, 3> color{};
};

// The part of the canvas, which lies within it, resized: [to.height, to.width, 3].
std::vector<float> ResizeToFloats(const Canvas& canvas, const Box& part, PictureSize to,
                                  Interpolation interpolation);

// How values become bytes on the way back from HSV, which is OpenCV's of 8 bits: hue in 0..179,
// half degrees.
enum class HsvRounding : std::uint8_t {
  kNearest,  // to nearest
  // As OpenCV 4.8 does with AVX2: with fused multiply-adds, and in each row whole groups of 32
  // pixels cut off, the rest rounded, so that a pixel's value depends on the picture's width. To
  // reproduce recordings.
  kOpenCv,
};

// Pictures of 3 channels, RGB or HSV, in place.
void RgbToHsv(Picture* picture);
void HsvToRgb(Picture* picture, HsvRounding rounding);

// Each change has probability 1/2; these are the ranges of its amount, those of ChainerCV's
// random_distort.
struct DistortSpec {
  double brightness = 32;      // added: -32..32
  Range contrast{0.5, 1.5};    // a factor
  Range saturation{0.5, 1.5};  // a factor
  int hue = 18;                // added: whole numbers in -18..18
};
// The random choices of the photometric distortion of SSD as ChainerCV makes it with OpenCV:
// brightness, then contrast, saturation and hue, or saturation, hue and contrast, each cut off to
// bytes (not rounded). Unset: this distortion is not applied.
struct Distortion {
  std::optional<double> brightness, contrast, saturation;
  std::optional<int> hue;
  bool contrast_first = true;
};
Distortion DrawDistortion(const DistortSpec& spec, Draws* draws);

// Distorts a picture of 3 channels, RGB.
void Distort(const Distortion& distortion, HsvRounding rounding, Picture* picture);

}  // namespace ada::data
