// `dataset: synthetic`: images made from the seed, in integer arithmetic alone, so that they are
// the same bytes on every machine. For tests, demonstrations and dry runs; it says nothing about
// accuracy.
#include <algorithm>
#include <cmath>
#include <limits>

#include "data/batch.h"
#include "data/dataset.h"
#include "error.h"
#include "io/text.h"
#include "number/random.h"

namespace ada::data {
namespace {

// A class is a color and a triangle wave across the image: a network can tell classes apart by the
// mean of a channel as well as by texture.
struct ChannelPattern {
  int color = 0;
  std::uint32_t step_y = 0, step_x = 0, phase = 0;  // turns, in units of 2^-32
};
constexpr int kColorLow = 64, kColorRange = 128;
constexpr int kWaveHeight = 56;  // the wave goes from -56 to 56
constexpr int kNoiseGain = 40;   // / 256; the sum of four bytes deviates by 147.8: noise by 23
constexpr double kMostBytes = 64.0 * (1 << 30);

constexpr std::uint64_t kPatternStream = StreamId("synthetic.pattern");
constexpr std::uint64_t kTrainStream = StreamId("synthetic.train");
constexpr std::uint64_t kTestStream = StreamId("synthetic.test");

// Up to 0.4 turns a pixel in either direction. A word is spread evenly over -kMost..kMost.
std::uint32_t StepFrom(std::uint32_t word) {
  constexpr std::uint64_t kMost = 1717986918;  // 0.4 * 2^32
  return static_cast<std::uint32_t>((word * (2 * kMost + 1) >> 32) - kMost);
}

// The classes' colors are spread evenly over each channel, in an order of the channel's own. The
// order of the colors is a permutation that each channel draws for itself, so that every channel
// tells all classes apart, each in another way.
std::vector<ChannelPattern> MakePatterns(const SyntheticSpec& spec, std::uint64_t seed) {
  const auto channels = static_cast<std::size_t>(spec.channels);
  std::vector<ChannelPattern> patterns(static_cast<std::size_t>(spec.classes) * channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const Order order =
        ShuffledOrder(seed ^ kPatternStream, static_cast<std::int64_t>(c), spec.classes);
    for (std::size_t label = 0; label < order.size(); ++label) {
      const auto words = Philox(seed, kPatternStream, label << 32 | c);
      patterns[label * channels + c] = {
          kColorLow + static_cast<int>((2 * order[label] + 1) * kColorRange / (2 * order.size())),
          StepFrom(words[0]), StepFrom(words[1]), words[2]};
    }
  }
  return patterns;
}

// -256..255 over one turn, up and down.
int Triangle(std::uint32_t turn) {
  const int t = static_cast<int>(turn >> 22);  // 0..1023
  return (t < 512 ? t : 1023 - t) - 256;
}

int PatternAt(const ChannelPattern& pattern, int y, int x) {
  const std::uint32_t turn = pattern.phase + pattern.step_y * static_cast<std::uint32_t>(y) +
                             pattern.step_x * static_cast<std::uint32_t>(x);
  return pattern.color + Triangle(turn) * kWaveHeight / 256;
}

// [classes, h, w, c]: the images before noise.
std::vector<std::uint8_t> DrawClasses(const SyntheticSpec& spec, std::uint64_t seed) {
  const std::vector<ChannelPattern> patterns = MakePatterns(spec, seed);
  const auto channels = static_cast<std::size_t>(spec.channels);
  std::vector<std::uint8_t> drawn;
  for (std::size_t first = 0; first < patterns.size(); first += channels) {  // of a class
    for (int y = 0; y < spec.height; ++y) {
      for (int x = 0; x < spec.width; ++x) {
        for (std::size_t c = 0; c < channels; ++c) {
          drawn.push_back(static_cast<std::uint8_t>(PatternAt(patterns[first + c], y, x)));
        }
      }
    }
  }
  return drawn;
}

// One random word a pixel: its four bytes, summed, are close to normal.
void AddNoise(const std::uint8_t* clean, std::int64_t size, std::uint64_t seed,
              std::uint64_t stream, std::int64_t image, std::uint8_t* out) {
  for (std::int64_t block = 0; block * 4 < size; ++block) {
    // The words of a pixel depend only on image and place, so that any image can be made by itself.
    const auto words = Philox(
        seed, stream, static_cast<std::uint64_t>(image) << 32 | static_cast<std::uint32_t>(block));
    for (std::int64_t i = block * 4; i < std::min(size, block * 4 + 4); ++i) {
      const std::uint32_t word = words[static_cast<std::size_t>(i - block * 4)];
      const int sum =
          static_cast<int>((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24)) -
          510;
      out[i] = static_cast<std::uint8_t>(std::clamp(clean[i] + sum * kNoiseGain / 256, 0, 255));
    }
  }
}

Dataset MakeSplit(const SyntheticSpec& spec, const std::vector<std::uint8_t>& classes,
                  std::uint64_t seed, std::uint64_t stream, std::int64_t images) {
  const std::int64_t size = std::int64_t{spec.height} * spec.width * spec.channels;
  Dataset dataset = {"synthetic", spec.height, spec.width, spec.channels, spec.classes};
  dataset.labels.resize(static_cast<std::size_t>(images));
  dataset.pixels.resize(static_cast<std::size_t>(images * size));
  for (std::int64_t i = 0; i < images; ++i) {
    const std::int64_t label = i % spec.classes;
    dataset.labels[static_cast<std::size_t>(i)] = static_cast<Label>(label);
    AddNoise(classes.data() + label * size, size, seed, stream, i,
             dataset.pixels.data() + i * size);
  }
  return dataset;
}

// Mean and population standard deviation of each channel, of pixels / 255; 1 for a constant
// channel.
void Measure(const Dataset& dataset, std::vector<double>* mean, std::vector<double>* std) {
  const auto channels = static_cast<std::size_t>(dataset.channels);
  std::vector<std::int64_t> sum(channels), squares(channels);
  for (std::size_t i = 0; i < dataset.pixels.size(); ++i) {
    const std::int64_t pixel = dataset.pixels[i];
    sum[i % channels] += pixel;
    squares[i % channels] += pixel * pixel;
  }
  const std::size_t pixels = dataset.pixels.size() / channels;
  const auto count = static_cast<double>(pixels);
  for (std::size_t c = 0; c < channels; ++c) {
    const double m = static_cast<double>(sum[c]) / count;
    const double variance = static_cast<double>(squares[c]) / count - m * m;
    mean->push_back(m / 255);
    std->push_back(variance > 0 ? std::sqrt(variance) / 255 : 1);
  }
}

// Bounds keep all products within their types, and the whole set within what a machine may have.
void Check(const SyntheticSpec& spec) {
  const auto require = [](bool good, const char* key, std::int64_t value, const char* expected) {
    if (!good) {
      throw ConfigError("data.synthetic." + std::string(key) + ": " + std::to_string(value) +
                        "; expected " + expected);
    }
  };
  require(spec.height >= 1 && spec.height <= 4096, "height", spec.height, "1 to 4096");
  require(spec.width >= 1 && spec.width <= 4096, "width", spec.width, "1 to 4096");
  require(spec.channels >= 1 && spec.channels <= 256, "channels", spec.channels, "1 to 256");
  require(spec.classes >= 2 && spec.classes <= 256, "classes", spec.classes, "2 to 256");
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  require(spec.train >= 1 && spec.train <= most, "train", spec.train, "1 to 2147483647");
  require(spec.test >= 1 && spec.test <= most, "test", spec.test, "1 to 2147483647");
  const double bytes = 1.0 * spec.height * spec.width * spec.channels *
                       (static_cast<double>(spec.train) + static_cast<double>(spec.test));
  if (bytes > kMostBytes) {
    throw ConfigError("data.synthetic: images of " + HumanBytes(static_cast<std::uint64_t>(bytes)) +
                      " together; expected at most 64 GiB: take fewer or smaller images");
  }
}

}  // namespace

Splits MakeSynthetic(const SyntheticSpec& spec, std::uint64_t seed) {
  Check(spec);
  const std::vector<std::uint8_t> classes = DrawClasses(spec, seed);
  Splits splits;
  splits.train = MakeSplit(spec, classes, seed, kTrainStream, spec.train);
  splits.test = MakeSplit(spec, classes, seed, kTestStream, spec.test);
  // `normalize: standard` takes the training images' own moments, as for published sets.
  Measure(splits.train, &splits.mean, &splits.std);
  return splits;
}

}  // namespace ada::data
