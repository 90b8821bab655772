// picture: one picture as the loader makes it.
#include <charconv>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/output.h"
#include "error.h"
#include "study/commands.h"

namespace ada::cli {
namespace {

// As large as a side of a picture may be made here.
constexpr int kMostSide = 32768;

// Corners and sizes are texts here; ReadBox and ReadSizes turn them into numbers.
struct PictureArguments {
  std::string box, resize;
  std::optional<int> center_crop;
  study::PictureOptions options;
};

// The whole numbers that `text` holds, with `between` between them; empty where it holds anything
// else.
// A number that an int cannot hold makes the list empty, too.
std::vector<int> NumbersOf(const std::string& text, char between) {
  std::vector<int> numbers;
  const char *at = text.data(), *end = at + text.size();
  while (true) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return {};
    numbers.push_back(number);
    if (next == end) return numbers;
    if (*next != between) return {};
    at = next + 1;
  }
}

// Whether a word is the first of the two that there are.
// For options that are one of two words.
bool IsFirst(const char* option, const std::string& word, const std::string& first,
             const std::string& second) {
  if (word != first && word != second)
    throw ConfigError(std::string(option) + " " + word + ": expected " + first + " or " + second);
  return word == first;
}

// Whether the box lies in the picture is checked once the picture's size is known.
void ReadBox(PictureArguments& a) {
  if (a.box.empty()) return;
  const std::vector<int> n = NumbersOf(a.box, ',');
  if (n.size() != 4)
    throw ConfigError("--box " + a.box +
                      ": expected X0,Y0,X1,Y1, whole numbers of pixels from the upper left corner");
  a.options.box = {n[0], n[1], n[2], n[3]};
}

// Sides are bounded before memory is asked for.
void ReadSizes(PictureArguments& a) {
  constexpr char kSide[] = "a number of pixels from 1 to 32768";
  if (a.center_crop)
    a.options.center_crop =
        static_cast<int>(Checked(*a.center_crop, 1, kMostSide, "--center-crop", kSide));
  if (a.resize.empty()) return;
  const std::vector<int> n = NumbersOf(a.resize, 'x');
  if (n.empty() || n.size() > 2)
    throw ConfigError("--resize " + a.resize +
                      ": expected N (the shorter side) or HxW (height and width), for example 256 "
                      "or 224x224");
  for (const int side : n) Checked(side, 1, kMostSide, "--resize", kSide);
  // One number keeps the picture's shape, two give both sides.
  if (n.size() == 1) a.options.shorter_side = n[0];
  if (n.size() == 2) {
    a.options.height = n[0];
    a.options.width = n[1];
  }
}

}  // namespace

// IN is read by the loader's own functions, so the picture is what a network would get.
Commands AddPictureCommands(CLI::App& app) {
  auto a = std::make_shared<PictureArguments>();
  CLI::App* picture =
      Add(app, "picture", "a picture as a network would see it, or its size and kind",
          "  ada-train picture photo.jpg -o seen.png --resize 256 --center-crop 224\n"
          "  ada-train picture photo.jpg -o seen.png --box 40,0,300,260 --resize 224x224 --flip");
  picture->add_option("IN", a->options.input, "a JPEG, PNG or WebP file")
      ->type_name("")
      ->required();
  picture
      ->add_option("-o,--output", a->options.output,
                   "the PNG to write (default: none; size and kind are printed)")
      ->type_name("OUT.png");
  // The group's title is in the help; the order of the options is that in which they act.
  const auto add = [&](const char* name, auto& value, const char* type, const char* what) {
    picture->add_option(name, value, what)
        ->type_name(type)
        ->group("Changes, in this order, by the code that loads data sets");
  };
  add("--box", a->box, "X0,Y0,X1,Y1", "columns X0 to X1 - 1 and rows Y0 to Y1 - 1, from 0");
  add("--resize", a->resize, "N|HxW",
      "the shorter side becomes N, or height and width H and W (bilinear, antialias)");
  add("--center-crop", a->center_crop, "N",
      "N x N from the middle, black where the picture is smaller");
  picture
      ->add_option_function<std::string>(
          "--exif",
          [a](const std::string& word) {
            a->options.rules.applies_exif = IsFirst("--exif", word, "apply", "ignore");
          },
          "apply: turned as its EXIF orientation says; ignore (the default)")
      ->type_name("WHAT")
      ->trigger_on_parse();
  picture
      ->add_option_function<std::string>(
          "--sixteen-bit",
          [a](const std::string& word) {
            a->options.rules.sixteen_bit = IsFirst("--sixteen-bit", word, "scale", "clip")
                                               ? data::SixteenBit::kScale
                                               : data::SixteenBit::kClip;
          },
          "of 16-bit PNG: scale: v / 257; clip (the default): as PIL, grey above\n255 is white")
      ->type_name("WHAT")
      ->trigger_on_parse();
  picture->add_flag("--flip", a->options.flip, "mirror the columns")
      ->group("Changes, in this order, by the code that loads data sets");
  return {{picture, [a] {
             ReadBox(*a);
             ReadSizes(*a);
             OutputPaths paths;
             paths.Read("IN", a->options.input);
             paths.Write("--output", a->options.output);
             paths.Check();
             const TerminalText out(std::cout), notes(std::cerr);
             study::ShowPicture(a->options, std::cout, std::cerr);
             return 0;
           }}};
}

}  // namespace ada::cli
