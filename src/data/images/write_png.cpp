// PNG by libpng: writing, through a file that is there whole or not at all.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "data/images/picture.h"
#include "error.h"
#include "io/file.h"

namespace ada::data {
namespace {

constexpr int kLongestPngSide = PNG_USER_WIDTH_MAX;
static_assert(PNG_USER_WIDTH_MAX == PNG_USER_HEIGHT_MAX);

// The library's output, collected in memory: an AtomicFile throws, which must not pass through it.
struct PngOutput {
  std::jmp_buf jump;
  std::string bytes;
  char problem[256] = "";  // in the library's words; "": no memory

  static void OnError(png_structp png, png_const_charp words) {
    auto* output = static_cast<PngOutput*>(png_get_error_ptr(png));
    std::snprintf(output->problem, sizeof output->problem, "%s", words);
    std::longjmp(output->jump, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}
  static void Write(png_structp png, png_bytep from, std::size_t bytes) {
    auto* output = static_cast<PngOutput*>(png_get_io_ptr(png));
    try {
      output->bytes.append(reinterpret_cast<const char*>(from), bytes);
      return;
    } catch (const std::exception&) {
    }
    png_error(png, "");
  }
  static void Flush(png_structp) {}
};

int ColorType(const Picture& picture, std::span<const png_color> palette) {
  if (!palette.empty()) return PNG_COLOR_TYPE_PALETTE;
  return picture.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB;
}

// Returns false where the library reported an error. Nothing in here may need a destructor.
bool WriteRows(png_structp png, png_infop info, const Picture& picture,
               std::span<const png_color> palette, PngOutput* output) {
  if (setjmp(output->jump) != 0) return false;
  png_set_write_fn(png, output, PngOutput::Write, PngOutput::Flush);
  png_set_IHDR(png, info, static_cast<png_uint_32>(picture.width),
               static_cast<png_uint_32>(picture.height), 8, ColorType(picture, palette),
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  png_write_info(png, info);
  const std::ptrdiff_t row = std::ptrdiff_t{picture.width} * picture.channels;
  for (std::ptrdiff_t y = 0; y < picture.height; ++y)
    png_write_row(png, picture.pixels.data() + y * row);
  png_write_end(png, info);
  return true;
}

// `palette` empty: gray or RGB.
void WriteFile(const std::string& path, const Picture& picture,
               std::span<const png_color> palette) {
  ADA_CHECK(picture.channels == 1 || picture.channels == 3);
  ADA_CHECK(picture.height > 0 && picture.width > 0 &&
            picture.pixels.size() == static_cast<std::size_t>(picture.height) *
                                         static_cast<std::size_t>(picture.width) *
                                         static_cast<std::size_t>(picture.channels));
  // The library writes no longer side, and others read none.
  if (picture.height > kLongestPngSide || picture.width > kLongestPngSide)
    throw OutputError(path + ": would have " + SizeText(picture.size()) +
                      "; a PNG file is written with at most " + std::to_string(kLongestPngSide) +
                      " on a side: crop or resize the picture");
  // The file is made before the picture is packed: a path that cannot be written ends the call at
  // once.
  AtomicFile file(path);
  PngOutput output;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &output, PngOutput::OnError,
                                            PngOutput::OnWarning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  const bool good = info != nullptr && WriteRows(png, info, picture, palette, &output);
  png_destroy_write_struct(&png, &info);
  const std::string problem = output.problem;
  if (!good && (problem.empty() || problem.find("emory") != std::string::npos))
    throw DeviceError(path + ": there is no memory to make the PNG in");
  if (!good) throw OutputError(path + ": the PNG cannot be made: " + problem);
  file.Write(output.bytes);
  file.Commit();
}

}  // namespace

void WritePng(const std::string& path, const Picture& picture) { WriteFile(path, picture, {}); }

void WritePalettePng(const std::string& path, const Picture& picture,
                     const std::vector<PaletteColor>& colors) {
  ADA_CHECK(picture.channels == 1 && !colors.empty() && colors.size() <= PNG_MAX_PALETTE_LENGTH);
  std::vector<png_color> palette;
  for (const PaletteColor& color : colors) palette.push_back({color.r, color.g, color.b});
  WriteFile(path, picture, palette);
}

}  // namespace ada::data
