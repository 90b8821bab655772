// The bytes of event files: checksums from RFC 3720, frames and messages written out by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "telemetry/tensorboard.h"

using namespace ada::telemetry;

namespace {

// "0a 01 61" as the bytes it names.
std::string Bytes(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 3) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string Ramp(int first, int step) {
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(first + i * step);
  return bytes;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("CRC-32C: the examples of RFC 3720 B.4, and the check value of the catalogues") {
    CHECK(Crc32c(std::string(32, '\0')) == 0x8a9136aa);
    CHECK(Crc32c(std::string(32, '\xff')) == 0x62a8ab43);
    CHECK(Crc32c(Ramp(0, 1)) == 0x46dd794e);
    CHECK(Crc32c(Ramp(31, -1)) == 0x113fdb5c);
    CHECK(Crc32c("123456789") == 0xe3069283);
    CHECK(Crc32c("") == 0);
  }

  TEST_CASE("a frame: the checksum is turned right by 15 bits, plus 0xa282ead8") {
    // 0xe3069283 turned is 0x2507c60d; with the constant 0xc78ab0e5.
    const std::string framed = Framed("123456789");
    CHECK(framed.size() == 8 + 4 + 9 + 4);
    CHECK(framed.substr(0, 8) == Bytes("09 00 00 00 00 00 00 00"));
    CHECK(framed.substr(12, 9) == "123456789");
    CHECK(framed.substr(21) == Bytes("e5 b0 8a c7"));
    // An empty record: its checksum is the constant alone, that of 8 zero bytes is 0x8c28b28a.
    CHECK(Framed("") ==
          Bytes("00 00 00 00 00 00 00 00") + Bytes("29 03 98 07") + Bytes("d8 ea 82 a2"));
  }

  TEST_CASE("events") {
    const std::string time = "09 00 00 00 00 00 00 f8 3f ";  // field 1, 1.5
    CHECK(VersionEvent(1.5) == Bytes(time + "10 00 1a 0d") + "brain.Event:2");
    CHECK(SessionStartEvent(1.5, 300) == Bytes(time + "10 ac 02 3a 02 08 01"));
    std::string summary;
    AppendScalar(summary, "a", -2);
    AppendScalar(summary, "bc", 1e300);  // beyond float: inf
    CHECK(summary ==
          Bytes("0a 08 0a 01 61 15 00 00 00 c0 ") + Bytes("0a 09 0a 02 62 63 15 00 00 80 7f"));
    CHECK(SummaryEvent(1.5, 1, summary) == Bytes(time + "10 01 2a 15") + summary);
    std::string special;
    AppendScalar(special, "", -1e300);
    AppendScalar(special, "", 0.1);
    CHECK(special == Bytes("0a 07 0a 00 15 00 00 80 ff 0a 07 0a 00 15 cd cc cc 3d"));
    std::string nan;
    AppendScalar(nan, "", NAN);
    CHECK((static_cast<unsigned char>(nan[8]) & 0x7f) == 0x7f);
    CHECK((static_cast<unsigned char>(nan[7]) & 0xc0) == 0xc0);
  }

  TEST_CASE("a histogram; a length of two bytes") {
    std::string summary;
    AppendHistogram(summary, "h", {0, 4, 3, 5.5, 15.25, {2, 4}, {1, 2}});
    const std::string proto =
        Bytes(
            "09 00 00 00 00 00 00 00 00 11 00 00 00 00 00 00 10 40 19 00 00 00 00 00 00 08 40 "
            "21 00 00 00 00 00 00 16 40 29 00 00 00 00 00 80 2e 40") +
        Bytes("32 10 00 00 00 00 00 00 00 40 00 00 00 00 00 00 10 40") +
        Bytes("3a 10 00 00 00 00 00 00 f0 3f 00 00 00 00 00 00 00 40");
    REQUIRE(proto.size() == 81);
    CHECK(summary == Bytes("0a 56 0a 01 68 2a 51") + proto);
    const std::string tag(300, 't');
    std::string scalar;
    AppendScalar(scalar, tag, 0);
    CHECK(scalar == Bytes("0a b4 02 0a ac 02") + tag + Bytes("15 00 00 00 00"));
  }
}
