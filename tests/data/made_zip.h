// ZIP files made at run time, with the sums that belong to their members.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace ada::data {

// By the layout of APPNOTE.TXT.
class ZipFile {
 public:
  void Add(const std::string& name, const std::string& content, bool deflated) {
    const std::string stored = deflated ? Deflated(content) : content;
    const std::size_t offset = bytes_.size();
    std::string facts;  // from the method to the lengths
    Put(deflated ? 8 : 0, 2, &facts), Put(0, 4, &facts);
    Put(crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())),
        4, &facts);
    Put(stored.size(), 4, &facts), Put(content.size(), 4, &facts), Put(name.size(), 2, &facts);
    Put(0x04034b50, 4, &bytes_), Put(20, 2, &bytes_), Put(0, 2, &bytes_);
    bytes_ += facts;
    Put(0, 2, &bytes_);
    bytes_ += name + stored;
    Put(0x02014b50, 4, &directory_), Put(20, 2, &directory_), Put(20, 2, &directory_);
    Put(0, 2, &directory_);
    directory_ += facts + std::string(12, '\0');  // no extra, no comment, disk 0, attributes
    Put(offset, 4, &directory_);
    directory_ += name;
    ++members_;
  }
  std::string Finish() const {
    std::string all = bytes_ + directory_;
    Put(0x06054b50, 4, &all), Put(0, 4, &all), Put(members_, 2, &all), Put(members_, 2, &all);
    Put(directory_.size(), 4, &all), Put(bytes_.size(), 4, &all), Put(0, 2, &all);
    return all;
  }

 private:
  static void Put(std::uint64_t value, int bytes, std::string* to) {
    for (int i = 0; i < bytes; ++i) *to += static_cast<char>(value >> 8 * i & 255);
  }
  static std::string Deflated(const std::string& content) {
    z_stream stream{};
    if (deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::runtime_error("deflateInit2");
    std::string packed(deflateBound(&stream, static_cast<uLong>(content.size())), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
    stream.avail_in = static_cast<uInt>(content.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    const int code = deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    if (code != Z_STREAM_END) throw std::runtime_error("deflate");
    return packed;
  }
  std::string bytes_, directory_;
  std::size_t members_ = 0;
};

}  // namespace ada::data
