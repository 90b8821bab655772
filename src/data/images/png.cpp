// PNG by libpng: reading. As in jpeg.cpp, errors jump back into Guarded, and only steps whose
// variables need no destructor lie between.
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "data/file_fault.h"
#include "data/images/formats.h"
#include "data/images/picture.h"
#include "error.h"
#include "io/data_files.h"

namespace ada::data {
namespace {

// Deflate packs no better than 1032:1 (zlib's technical notes).
constexpr std::uint64_t kMostDeflate = 1032;

// What is made of the values of a file.
enum class PngValues : std::uint8_t { kRgb, kLabels };

// The orientation in the chunk eXIf before the pixels, which libpng skips here; 1: there is none.
int OrientationOfPng(FileBytes file) {
  using std::string_view_literals::operator""sv;
  constexpr std::size_t kSignature = 8, kAround = 12;  // length, name and checksum of a chunk
  for (std::size_t at = kSignature; at + kAround <= file.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | file[at + i];
    const std::string_view name(reinterpret_cast<const char*>(file.data()) + at + 4, 4);
    if (name == "IDAT"sv || length > file.size() - at - kAround) return 1;
    if (name == "eXIf"sv) return OrientationOfExif(file.subspan(at + 8, length));
    at += kAround + length;
  }
  return 1;
}

// Lives for one file and one call, in one thread; `file` and `path` must outlive it. The library
// gets a pointer to it for errors, memory and bytes, so it never moves.
class PngReader {
 public:
  // Reads the header.
  PngReader(FileBytes file, const std::string& path, PngValues values = PngValues::kRgb,
            SixteenBit sixteen_bit = SixteenBit::kClip)
      : file_(file),
        left_(file),
        bytes_(file.size()),
        path_(path),
        values_(values),
        sixteen_bit_(sixteen_bit) {
    png_ = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning, this, Allocate,
                                    Free);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw NoMemory(path_, kDecoding);
    }
    try {
      ReadHeader();
    } catch (...) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw;
    }
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  PictureHeader Header() const;
  // Returns the part `box` of the picture, or all of it (null). A reader decodes once.
  Picture Decode(const Box* box);

 private:
  void ReadHeader();
  // Decode calls these in this order: the checks, the conversions that the library does, the rows;
  // Convert does the rest, pixel by pixel, where the library's own conversions are not PIL's.
  void CheckBytes() const;
  void RequireLabels() const;
  void ChooseConversions();
  void Convert(const std::uint8_t* in, int pixels, std::uint8_t* out) const;
  std::ptrdiff_t channels() const { return values_ == PngValues::kLabels ? 1 : 3; }
  std::uint64_t BytesOfConverted() const;
  void ReadRows(const Box& box, std::uint8_t* out);
  void ReadInterlaced(const Box& box, std::uint8_t* out);

  template <class Step>
  void Guarded(const Step& step) {
    if (setjmp(jump_) != 0) Throw();
    step();
  }

  [[noreturn]] void Throw() const {
    if (no_memory_) throw NoMemory(path_, kDecoding);
    throw FaultyFile(ended_ ? FaultKind::kCut : FaultKind::kUnreadable, path_ + ": " + words_);
  }

  // The library and zlib say in many words that they got no memory; that it was refused is plain.
  static png_voidp Allocate(png_structp png, png_alloc_size_t bytes) {
    void* block = std::malloc(bytes);
    if (block == nullptr) static_cast<PngReader*>(png_get_mem_ptr(png))->no_memory_ = true;
    return block;
  }
  static void Free(png_structp, png_voidp block) { std::free(block); }

  static void OnError(png_structp png, png_const_charp words) {
    auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
    // If the data has ended, there is already a message: libpng's would be about a failed
    // read.
    if (!reader->ended_)
      std::snprintf(reader->words_, sizeof reader->words_, "the PNG data cannot be decoded: %s",
                    words);
    std::longjmp(reader->jump_, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}
  static void Read(png_structp png, png_bytep to, std::size_t bytes) {
    auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (bytes > reader->left_.size()) {
      reader->ended_ = true;
      std::snprintf(reader->words_, sizeof reader->words_,
                    "the PNG data is cut off; the picture is damaged");
      png_error(png, "");
    }
    std::memcpy(to, reader->left_.data(), bytes);
    reader->left_ = reader->left_.subspan(bytes);
  }

  bool HoldsLabels() const {
    return kind_ == PNG_COLOR_TYPE_PALETTE || (kind_ == PNG_COLOR_TYPE_GRAY && depth_ <= 8);
  }
  // In 16-bit gray each value needs both bytes.
  bool clips() const {
    return kind_ == PNG_COLOR_TYPE_GRAY && depth_ == 16 && sixteen_bit_ == SixteenBit::kClip;
  }

  FileBytes file_, left_;
  std::size_t bytes_;
  const std::string& path_;
  PngValues values_;
  SixteenBit sixteen_bit_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_;
  char words_[256] = "";
  bool ended_ = false, no_memory_ = false;
  PictureSize size_;
  int depth_ = 0, kind_ = 0, interlaced_ = 0;
  std::array<std::array<std::uint8_t, 3>, 256> palette_{};
};

void PngReader::ReadHeader() {
  Guarded([this] {
    png_set_read_fn(png_, this, Read);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // CheckSize knows the limit
    // libpng reports errors that it calls benign as warnings, which are ignored, and discards
    // chunks that are not needed.
    png_set_benign_errors(png_, 1);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
    png_uint_32 width = 0, height = 0;
    png_get_IHDR(png_, info_, &width, &height, &depth_, &kind_, &interlaced_, nullptr, nullptr);
    size_ = {static_cast<int>(height), static_cast<int>(width)};
  });
  CheckSize(path_, size_.height, size_.width);
}

PictureHeader PngReader::Header() const {
  const char* kind = kind_ == PNG_COLOR_TYPE_GRAY         ? "grey"
                     : kind_ == PNG_COLOR_TYPE_GRAY_ALPHA ? "grey and alpha"
                     : kind_ == PNG_COLOR_TYPE_PALETTE    ? "palette"
                     : kind_ == PNG_COLOR_TYPE_RGB        ? "RGB"
                                                          : "RGBA";
  const auto pixels =
      static_cast<std::uint64_t>(size_.height) * static_cast<std::uint64_t>(size_.width);
  const std::uint64_t made = pixels * static_cast<std::uint64_t>(channels());
  // The rows of an interlaced picture are all held at once, since each pass adds to all of them.
  const std::uint64_t rows = interlaced_ == PNG_INTERLACE_NONE ? 0 : pixels * BytesOfConverted();
  PictureTraits traits;
  traits.bits = depth_;
  traits.gray = (kind_ & PNG_COLOR_MASK_COLOR) == 0;
  traits.palette = kind_ == PNG_COLOR_TYPE_PALETTE;
  // A chunk tRNS makes one color, or entries of the palette, transparent; that is alpha too.
  traits.alpha =
      (kind_ & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
  traits.clipped = kind_ == PNG_COLOR_TYPE_GRAY && depth_ == 16;
  traits.png = true;
  traits.may_be_labels = HoldsLabels();
  traits.orientation = OrientationOfPng(file_);
  return {size_,
          "PNG, " + std::to_string(depth_) + "-bit " + kind +
              (interlaced_ == PNG_INTERLACE_NONE ? "" : ", interlaced"),
          traits, made + rows};
}

// A claim of more pixels than so few bytes can pack is false, and found before memory is taken.
void PngReader::CheckBytes() const {
  const std::uint64_t pixels =
      static_cast<std::uint64_t>(size_.height) * static_cast<std::uint64_t>(size_.width);
  const auto bits = static_cast<std::uint64_t>(depth_) * png_get_channels(png_, info_);
  if (pixels * bits / 8 / kMostDeflate <= bytes_) return;
  throw FaultyFile(FaultKind::kCut, path_ + ": the PNG data is cut off (" + std::to_string(bytes_) +
                                        " bytes for " + SizeText(size_) +
                                        "); the picture is damaged");
}

void PngReader::RequireLabels() const {
  if (HoldsLabels()) return;
  throw DataError(path_ + ": " + Header().kind +
                  ": no label image; expected 8-bit grey or palette PNG, whose values are the "
                  "numbers of the classes; of colors, data.label_values says the classes");
}

// The bytes of a pixel after ChooseConversions.
std::uint64_t PngReader::BytesOfConverted() const {
  if (values_ == PngValues::kLabels || kind_ == PNG_COLOR_TYPE_PALETTE) return 1;
  return clips() ? 2 : 3;
}

// After these conversions a pixel is 3 bytes of color, an index of the palette, two bytes of gray,
// or a label.
void PngReader::ChooseConversions() {
  if (values_ == PngValues::kLabels) {
    png_set_packing(png_);
  } else if (kind_ == PNG_COLOR_TYPE_PALETTE) {
    png_set_packing(png_);
    palette_ = {};  // an index that the palette does not have is black, as in PIL
    png_colorp colors = nullptr;
    int count = 0;
    png_get_PLTE(png_, info_, &colors, &count);
    for (int i = 0; i < std::min(count, 256); ++i)
      palette_[static_cast<std::size_t>(i)] = {colors[i].red, colors[i].green, colors[i].blue};
  } else if (!clips()) {
    if (depth_ < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (depth_ == 16 && sixteen_bit_ == SixteenBit::kScale) png_set_scale_16(png_);
    if (depth_ == 16 && sixteen_bit_ == SixteenBit::kClip) png_set_strip_16(png_);
    if ((kind_ & PNG_COLOR_MASK_ALPHA) != 0) png_set_strip_alpha(png_);
    if ((kind_ & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png_);
  }
  if (interlaced_ != PNG_INTERLACE_NONE) png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
}

// Converts `pixels` pixels of a row to what the picture holds. 16-bit gray above 255 becomes white,
// as PIL's conversion to RGB has it.
void PngReader::Convert(const std::uint8_t* in, int pixels, std::uint8_t* out) const {
  if (values_ == PngValues::kLabels) {
    std::copy(in, in + pixels, out);
  } else if (kind_ == PNG_COLOR_TYPE_PALETTE) {
    for (int i = 0; i < pixels; ++i, out += 3)
      std::copy(palette_[in[i]].begin(), palette_[in[i]].end(), out);
  } else if (clips()) {
    for (int i = 0; i < pixels; ++i, out += 3)
      std::fill(out, out + 3, in[2 * i] != 0 ? 255 : in[2 * i + 1]);
  } else {
    std::copy(in, in + 3 * static_cast<std::ptrdiff_t>(pixels), out);
  }
}

void PngReader::ReadRows(const Box& box, std::uint8_t* out) {
  std::vector<std::uint8_t> row(png_get_rowbytes(png_, info_));
  const std::size_t pixel_bytes = row.size() / static_cast<std::size_t>(size_.width);
  const std::uint8_t* in = row.data() + pixel_bytes * static_cast<std::size_t>(box.left);
  Guarded([&] {
    // All rows: each is unpacked from the one above it, and the checksum stands after the last.
    for (int y = 0; y < size_.height; ++y) {
      png_read_row(png_, row.data(), nullptr);
      if (y < box.top || y >= box.top + box.height) continue;
      Convert(in, box.width, out);
      out += channels() * box.width;
    }
  });
}

void PngReader::ReadInterlaced(const Box& box, std::uint8_t* out) {
  const std::size_t row_bytes = png_get_rowbytes(png_, info_);
  const std::size_t pixel_bytes = row_bytes / static_cast<std::size_t>(size_.width);
  std::vector<std::uint8_t> all(row_bytes * static_cast<std::size_t>(size_.height));
  std::vector<png_bytep> rows;
  for (int y = 0; y < size_.height; ++y)
    rows.push_back(all.data() + row_bytes * static_cast<std::size_t>(y));
  Guarded([&] { png_read_image(png_, rows.data()); });
  for (int y = 0; y < box.height; ++y, out += channels() * box.width) {
    Convert(rows[static_cast<std::size_t>(box.top + y)] +
                pixel_bytes * static_cast<std::size_t>(box.left),
            box.width, out);
  }
}

Picture PngReader::Decode(const Box* box) {
  CheckBytes();
  if (values_ == PngValues::kLabels) RequireLabels();
  const Box wanted = box == nullptr ? Box{0, 0, size_.height, size_.width} : *box;
  Picture picture = RoomFor(path_, {wanted.height, wanted.width}, static_cast<int>(channels()));
  Guarded([this] { ChooseConversions(); });
  if (interlaced_ == PNG_INTERLACE_NONE) {
    ReadRows(wanted, picture.pixels.data());
  } else {
    ReadInterlaced(wanted, picture.pixels.data());
  }
  return picture;
}

}  // namespace

bool IsPng(FileBytes file) { return file.size() >= 8 && png_sig_cmp(file.data(), 0, 8) == 0; }

PictureHeader PngHeader(FileBytes file, const std::string& path) {
  return PngReader(file, path).Header();
}

Picture DecodePng(FileBytes file, const std::string& path, const Box* box, SixteenBit sixteen_bit) {
  return PngReader(file, path, PngValues::kRgb, sixteen_bit).Decode(box);
}

namespace {

void RequirePngOfLabels(FileBytes file, const std::string& path, const char* expected) {
  if (IsPng(file)) return;
  throw DataError(path + ": " + (IsJpeg(file) ? "is a JPEG picture" : WhatItLooksLike(file)) +
                  "; expected a label image, " + expected);
}

}  // namespace

Picture DecodeLabelPng(FileBytes file, const std::string& path) {
  RequirePngOfLabels(file, path, "8-bit grey or palette PNG");
  return WithMemory(path, kDecoding,
                    [&] { return PngReader(file, path, PngValues::kLabels).Decode(nullptr); });
}

Picture ReadLabelPng(const std::string& path) {
  return DecodeLabelPng(ReadPictureFile(path), path);
}

Picture ReadColorPng(const std::string& path) {
  const std::vector<std::uint8_t> file = ReadPictureFile(path);
  RequirePngOfLabels(file, path, "a PNG whose colors are the classes");
  return DecodePicture(file, path);
}

}  // namespace ada::data
