// JPEG by libjpeg-turbo. The library reports errors by a function that must not return: it keeps
// the words and jumps back into Guarded, which throws. Between the jump and its target there is
// nothing but the library and steps whose variables need no destructor.
#include <cstddef>
#include <cstdio>
// Each of these needs what stands above it.
#include <jpeglib.h>
// jerror.h has no guard of its own against standing first.
#include <jerror.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <string>

#include "data/file_fault.h"
#include "data/images/formats.h"
#include "data/images/picture.h"
#include "error.h"
#include "io/data_files.h"

namespace ada::data {
namespace {

// The library knows only the base; the functions below get back to this by a cast.
struct JpegErrors : jpeg_error_mgr {
  std::jmp_buf jump;
  char words[JMSG_LENGTH_MAX] = "";
};

[[noreturn]] void Leave(j_common_ptr info) {
  auto* errors = static_cast<JpegErrors*>(info->err);
  errors->format_message(info, errors->words);
  std::longjmp(errors->jump, 1);
}

// Warnings after which pixels are guesses are errors. Others tell of what readers pass over: bytes
// between segments, unknown versions of JFIF.
void Warn(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_JPEG_EOF:
      Leave(info);
    default:
      return;
  }
}

// The whole file is in memory: the source of bytes has nothing to do at its beginning and its end,
// and nothing to give when the library asks for more.
void OutputNothing(j_common_ptr) {}
void StartSource(j_decompress_ptr) {}
void EndSource(j_decompress_ptr) {}

// The file has ended where the library needs more.
boolean RefuseMore(j_decompress_ptr info) {
  ERREXIT(info, JERR_INPUT_EOF);
  return FALSE;
}

void Skip(j_decompress_ptr info, long bytes) {
  if (bytes <= 0) return;
  jpeg_source_mgr& source = *info->src;
  if (static_cast<unsigned long>(bytes) > source.bytes_in_buffer) RefuseMore(info);
  source.next_input_byte += bytes;
  source.bytes_in_buffer -= static_cast<std::size_t>(bytes);
}

// The bytes of color that CMYK of Adobe's polarity (255: no ink) becomes, rounded as PIL does.
void CmykToRgb(const std::uint8_t* in, int pixels, std::uint8_t* out) {
  for (int i = 0; i < pixels; ++i, in += 4, out += 3) {
    const int left = in[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - in[c]) * left + 128;
      out[c] = static_cast<std::uint8_t>(left - (((product >> 8) + product) >> 8));
    }
  }
}

// What the library holds goes even where reading the header throws.
struct JpegState : jpeg_decompress_struct {
  ~JpegState() { jpeg_destroy_decompress(this); }
};

// Lives for one file and one call, in one thread. `file` and `path` must outlive it. Calls of the
// library that can fail are within Guarded.
class JpegReader {
 public:
  // Reads the header.
  JpegReader(FileBytes file, const std::string& path) : file_(file), path_(path) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = Leave;
    errors_.emit_message = Warn;
    errors_.output_message = OutputNothing;
    // The order is the library's: the error manager stands before the state is made, the source
    // before the header is read.
    Guarded([this] {
      jpeg_create_decompress(&info_);
      info_.src = &source_;
      source_.init_source = StartSource;
      source_.fill_input_buffer = RefuseMore;
      source_.skip_input_data = Skip;
      source_.resync_to_restart = jpeg_resync_to_restart;
      source_.term_source = EndSource;
      source_.next_input_byte = file_.data();
      source_.bytes_in_buffer = file_.size();
      jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);  // EXIF
      jpeg_read_header(&info_, TRUE);
    });
    CheckSize(path_, info_.image_height, info_.image_width);
    const int n = info_.num_components;
    if (n != 1 && n != 3 && n != 4) {
      throw DataError(path_ + ": has " + std::to_string(n) +
                      " components; expected a JPEG of 1 (grey), 3 (colour) or 4 (CMYK)");
    }
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  PictureHeader Header() {
    return {Size(),
            "JPEG, " + std::to_string(info_.num_components) +
                (info_.num_components == 1 ? " component" : " components") +
                (info_.progressive_mode ? ", progressive" : ""),
            Traits(), DecodingBytes()};
  }

  Picture Decode(const Box* box) {
    // Both checks stand before the library takes memory for pixels or coefficients.
    CheckBytes();
    CheckScans();
    const Box all{0, 0, Size().height, Size().width};
    // A file without the marker of its end is read to its last row even where only a box is asked
    // for, so that the error is found whatever the box is.
    const bool whole = box == nullptr || !EndIsThere();
    const Box wanted = box == nullptr ? all : *box;
    Picture picture = RoomFor(path_, {wanted.height, wanted.width});
    const bool cmyk = info_.num_components == 4;
    Guarded([&] {
      info_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
      jpeg_start_decompress(&info_);
    });
    ReadRows(wanted, whole, picture.pixels.data());
    return picture;
  }

 private:
  PictureTraits Traits() const {
    PictureTraits traits;
    traits.gray = info_.num_components == 1;
    for (const jpeg_marker_struct* marker = info_.marker_list; marker; marker = marker->next) {
      const FileBytes bytes(marker->data, marker->data_length);
      // APP1 also holds XMP, which has another mark. The first EXIF block counts.
      if (!HasExifMark(bytes)) continue;
      traits.orientation = OrientationOfExif(bytes);
      break;
    }
    return traits;
  }

  PictureSize Size() const {
    return {static_cast<int>(info_.image_height), static_cast<int>(info_.image_width)};
  }

  // Runs `step`, whose variables need no destructor, and throws what the library reports.
  template <class Step>
  void Guarded(const Step& step) {
    if (setjmp(errors_.jump) != 0) Throw();
    step();
  }

  [[noreturn]] void Throw() const {
    const int code = errors_.msg_code;
    if (code == JERR_INPUT_EOF || code == JWRN_HIT_MARKER || code == JWRN_JPEG_EOF) {
      throw FaultyFile(FaultKind::kCut, path_ + ": the JPEG data is cut off (after row " +
                                            std::to_string(info_.output_scanline) + " of " +
                                            std::to_string(info_.image_height) +
                                            "); the picture is damaged");
    }
    if (code == JERR_OUT_OF_MEMORY) throw NoMemory(path_, kDecoding);
    throw DataError(path_ + ": the JPEG data cannot be decoded: " + errors_.words);
  }

  // Huffman codes take at least a bit for each block of 8 x 8 pixels of some component: a claim of
  // many more blocks (four bits may be missing: components can be sampled at different rates) is
  // false, and found before memory is taken.
  void CheckBytes() const {
    constexpr std::int64_t kMostPixelsOfByte = 8 * 64 * 4;
    const std::int64_t pixels = std::int64_t{Size().height} * Size().width;
    if (info_.arith_code || pixels / kMostPixelsOfByte <= static_cast<std::int64_t>(file_.size()))
      return;
    throw FaultyFile(FaultKind::kCut, path_ + ": the JPEG data is cut off (" +
                                          std::to_string(file_.size()) + " bytes for " +
                                          SizeText(Size()) + "); the picture is damaged");
  }

  // Where a file has several scans, as all progressive files do, the library holds all coefficients
  // at once.
  bool HoldsCoefficients() { return jpeg_has_multiple_scans(&info_) != FALSE; }

  std::vector<JpegComponent> Components() const {
    std::vector<JpegComponent> components;
    for (int i = 0; i < info_.num_components; ++i) {
      const jpeg_component_info& c = info_.comp_info[i];
      components.push_back({c.component_id, std::uint64_t{c.width_in_blocks} * c.height_in_blocks});
    }
    return components;
  }

  std::uint64_t DecodingBytes() {
    std::uint64_t bytes =
        3 * static_cast<std::uint64_t>(Size().height) * static_cast<std::uint64_t>(Size().width);
    if (!HoldsCoefficients()) return bytes;
    for (const JpegComponent& component : Components()) bytes += component.blocks * sizeof(JBLOCK);
    return bytes;
  }

  void CheckScans() {
    if (!HoldsCoefficients()) return;
    const JpegWork work = WorkOfScans(file_, Components());
    if (work.blocks <= kMostBlocksOfScans) return;
    throw DataError(path_ + ": the JPEG data goes over " + SizeText(Size()) + " in " +
                    std::to_string(work.scans) + " scans, which is " + std::to_string(work.blocks) +
                    " blocks to decode; expected at most " + std::to_string(kMostBlocksOfScans) +
                    ": the picture is made to take time, or damaged; save it anew or leave it out");
  }

  // Whether the marker of the end stands anywhere after the header, which ends at the first scan.
  bool EndIsThere() const {
    return HasEndMarker({source_.next_input_byte, source_.bytes_in_buffer});
  }

  // Reads the rows of `box` into `out`; `to_end`: also those below it, for the errors in them.
  void ReadRows(const Box& box, bool to_end, std::uint8_t* out);

  FileBytes file_;
  const std::string& path_;
  JpegErrors errors_{};
  jpeg_source_mgr source_{};
  JpegState info_{};  // the first to go: it knows the others
};

// Color is upsampled from its neighbors: columns are read with two blocks of the file beside
// them, so that those of the box are what they are in the whole picture.
void JpegReader::ReadRows(const Box& box, bool to_end, std::uint8_t* out) {
  const int channels = info_.out_color_components;
  const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(box.width);
  std::vector<std::uint8_t> row;
  const auto width = static_cast<int>(info_.output_width);
  const bool narrow = box.width < width;
  JDIMENSION first = 0, columns = info_.output_width;
  if (narrow) {
    const int margin = 2 * info_.max_h_samp_factor * DCTSIZE;
    first = static_cast<JDIMENSION>(std::max(0, box.left - margin));
    columns = static_cast<JDIMENSION>(std::min(width, box.left + box.width + margin)) - first;
    // The library moves `first` to the left and `columns` up to whole blocks.
    Guarded([&] { jpeg_crop_scanline(&info_, &first, &columns); });
  }
  // Memory is taken before the jump's target, in the function that holds it: a jump out of the loop
  // below passes no destructor.
  row.resize(std::size_t{4} * info_.output_width);
  const std::uint8_t* in =
      row.data() + static_cast<std::ptrdiff_t>(channels) * (box.left - static_cast<int>(first));
  // Rows of all columns in RGB go straight to where they belong.
  const bool direct = !narrow && channels == 3;
  Guarded([&] {
    if (box.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(box.top));
    for (int y = 0; y < box.height; ++y, out += row_bytes) {
      JSAMPROW to = direct ? out : row.data();
      jpeg_read_scanlines(&info_, &to, 1);
      if (channels == 4) CmykToRgb(in, box.width, out);
      if (channels == 3 && !direct) std::copy(in, in + row_bytes, out);
    }
    JSAMPROW to = row.data();
    while (to_end && info_.output_scanline < info_.output_height)
      jpeg_read_scanlines(&info_, &to, 1);
  });
}

}  // namespace

bool IsJpeg(FileBytes file) {
  constexpr std::array<std::uint8_t, 3> kBegin = {0xFF, 0xD8, 0xFF};
  return file.size() >= 3 && std::equal(kBegin.begin(), kBegin.end(), file.begin());
}

PictureHeader JpegHeader(FileBytes file, const std::string& path) {
  return JpegReader(file, path).Header();
}

Picture DecodeJpeg(FileBytes file, const std::string& path, const Box* box) {
  return JpegReader(file, path).Decode(box);
}

}  // namespace ada::data
