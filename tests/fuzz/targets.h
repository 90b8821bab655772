// The fuzz targets: each uses any bytes as one input of the program. A target returns if the input
// was read, or refused with a message (an Error other than InternalError); anything else, such as
// another exception, ends the process, and so do a target's checks of what was read. `fuzz.cpp`
// connects them to libFuzzer, `fuzz_test.cpp` runs each on its seeds in the test suites.
#pragma once
#include <array>
#include <string_view>

namespace ada::fuzz {

void Yaml(std::string_view input);         // a configuration; what loads must read back the same
void Safetensors(std::string_view input);  // a file; every tensor of an accepted one is read
void Checkpoint(std::string_view input);   // a checkpoint's JSON, its hash made right
void Summary(std::string_view input);      // summary.json
void Idx(std::string_view input);          // the two files of a split in MNIST's layout
void Cifar(std::string_view input);        // a batch file in CIFAR's layout
void Jpeg(std::string_view input);         // a picture, decoded, in parts, and changed
void Png(std::string_view input);          // the same, with sums that are right, and made of pieces
void Webp(std::string_view input);         // the same
void Npz(std::string_view input);          // an .npz file, its arrays, its first batches
void Tokens(std::string_view input);       // texts, files and arrays of tokens, their batches
void Annotation(std::string_view input);   // boxes in XML, and what training makes of them
void LabelImage(std::string_view input);   // a PNG that is read as labels
void Names(std::string_view input);        // lists of images, names of label images, of classes
void Detections(std::string_view input);   // the CSV that `score voc` judges
void Csv(std::string_view input);          // the reader itself, with each way to end, and followed
void Rows(std::string_view input);         // any CSV file of a run, into its rows and totals
void Watch(std::string_view input);        // a CSV file of a run that `watch` follows
void Study(std::string_view input);        // a CSV file under recommend, compare and what-if
void Replay(std::string_view input);       // the trace that `replay` takes

struct Target {
  std::string_view name;
  void (*run)(std::string_view input);
};
inline constexpr auto kTargets = std::to_array<Target>({{"yaml", Yaml},
                                                        {"safetensors", Safetensors},
                                                        {"checkpoint", Checkpoint},
                                                        {"summary", Summary},
                                                        {"idx", Idx},
                                                        {"cifar", Cifar},
                                                        {"jpeg", Jpeg},
                                                        {"png", Png},
                                                        {"webp", Webp},
                                                        {"npz", Npz},
                                                        {"tokens", Tokens},
                                                        {"annotation", Annotation},
                                                        {"label_image", LabelImage},
                                                        {"names", Names},
                                                        {"detections", Detections},
                                                        {"csv", Csv},
                                                        {"rows", Rows},
                                                        {"watch", Watch},
                                                        {"study", Study},
                                                        {"replay", Replay}});

}  // namespace ada::fuzz
