// `ada-train picture`: what it writes and prints, and how it ends.
#include <filesystem>
#include <string>
#include <vector>

#include "data/images/resize.h"
#include "error.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

TEST_SUITE("cpu") {
  TEST_CASE("picture writes what the loader's functions make, in their order") {
    const TempFolder folder;
    const std::string file =
        std::string(ADA_SOURCE_DIR) + "/tests/golden/pictures/files/rgb_420.jpg";
    const Outcome kind = Run({"picture", file}, folder.path());
    ADA_CHECK_EXIT(kind, 0);
    CHECK(kind.out == file + ": 128 x 96 pixels, JPEG, 3 components\n");
    const Outcome o = Run({"picture", file, "-o", "out.png", "--box", "10,20,110,80", "--resize",
                           "40", "--center-crop", "32", "--flip"},
                          folder.path());
    ADA_CHECK_EXIT(o, 0);
    CHECK(o.out.empty());
    const data::Picture all = data::ReadPicture(file);
    const data::Picture small = data::ResizeBox(all, {20, 10, 60, 100}, {40, 66});
    data::Picture wanted = data::CutBox(small, {4, 17, 32, 32});
    data::FlipColumns(&wanted);
    CHECK((data::ReadPicture(folder / "out.png").pixels == wanted.pixels));
    ADA_CHECK_EXIT(Run({"picture", file, "-o", "out.png", "--resize", "30x70"}, folder.path()), 0);
    CHECK((data::ReadPicture(folder / "out.png").pixels ==
           data::ResizeBox(all, {0, 0, 96, 128}, {30, 70}).pixels));
  }

  TEST_CASE("picture: one longer than a PNG may be names the limit, and leaves nothing") {
    const TempFolder folder;
    for (const bool wide : {false, true}) {
      const int height = wide ? 1 : 1'000'001, width = wide ? 1'000'001 : 1;
      CHECK_THROWS_WITH_AS(
          data::WritePng(folder / "long.png",
                         {height, width, 1, std::vector<std::uint8_t>(1'000'001)}),
          (folder / "long.png" + ": would have " + std::to_string(width) + " x " +
           std::to_string(height) +
           " pixels; a PNG file is written with at most 1000000 on a side: crop or resize the "
           "picture")
              .c_str(),
          OutputError);
    }
    CHECK(!std::filesystem::exists(folder / "long.png"));
    data::WritePng(folder / "long.png", {1, 1'000'000, 1, std::vector<std::uint8_t>(1'000'000)});
    CHECK(data::SizeInPictureFile(folder / "long.png") == data::PictureSize{1, 1'000'000});
  }

  TEST_CASE("picture: wrong options are exit code 2, bad pictures 3, outputs that fail 6") {
    const TempFolder folder;
    const std::string file =
        std::string(ADA_SOURCE_DIR) + "/tests/golden/pictures/files/rgb_420.jpg";
    folder.Write("text.jpg", "no picture");
    folder.Write("empty.png", "");
    struct Wrong {
      Arguments arguments;
      int code;
      std::string words;
    };
    const Wrong all[] = {
        {{file, "--box", "0,0,129,96"}, 2, "has 128 x 96 pixels"},
        {{file, "--box", "5,5,5,9"}, 2, "has 128 x 96 pixels"},
        {{file, "--box", "-1,0,5,9"}, 2, "has 128 x 96 pixels"},
        {{file, "--box", "1,2,3"}, 2, "X0,Y0,X1,Y1"},
        {{file, "--resize", "0"}, 2, "1 to 32768"},
        {{file, "--resize", "12y"}, 2, "HxW"},
        {{file, "--resize", "32768x32768"}, 2, "178956970"},
        {{file, "--center-crop", "0"}, 2, "1 to 32768"},
        {{}, 2, "IN"},
        {{"text.jpg"}, 3, "text.jpg: is text"},
        {{"empty.png"}, 3, "empty.png: is empty"},
        {{"missing.png"}, 3, "missing.png"},
        {{"/dev/zero"}, 3, "/dev/zero: cannot be opened: it is a device, not a regular file"},
        {{file, "-o", "nowhere/out.png"}, 6, "nowhere/out.png"},
    };
    for (const Wrong& wrong : all) {
      CAPTURE(wrong.words);
      const Outcome o = Run(With({"picture"}, wrong.arguments), folder.path());
      ADA_CHECK_EXIT(o, wrong.code);
      CHECK(o.out.empty());
      CHECK(Contains(o.err, wrong.words));
    }
  }
}

}  // namespace
}  // namespace ada::testing
