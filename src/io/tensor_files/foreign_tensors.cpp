// Recognizes files of PyTorch, NumPy, HDF5 and Python's pickle by their first bytes, and writes the
// Python that converts them.
#include "io/tensor_files/safetensors_header.h"

namespace ada {
namespace {

// The name of a zip archive's first entry; empty: it is none.
std::string_view FirstEntry(std::string_view begin) {
  constexpr std::size_t kLengthAt = 26, kNameAt = 30;  // of the local file header
  if (!begin.starts_with("PK\x03\x04") || begin.size() < kNameAt) return {};
  const auto length = static_cast<std::size_t>(static_cast<unsigned char>(begin[kLengthAt])) +
                      256 * static_cast<unsigned char>(begin[kLengthAt + 1]);
  return begin.substr(kNameAt, length);
}

// "weights.safetensors" beside "weights.pt", as a text of Python.
std::string InQuotes(const std::string& path) {
  std::string text = "\"";
  for (const char c : path) text += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return text + "\"";
}

std::string Target(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const bool in_name = dot != std::string::npos && path.find('/', dot) == std::string::npos;
  return InQuotes((in_name ? path.substr(0, dot) : path) + ".safetensors");
}

std::string Lines(const std::string& kind, const std::string& library, const std::string& module,
                  const std::string& tensors, const std::string& path) {
  return "is " + kind + ", not safetensors; in Python these lines convert it:\n  import " +
         library + "\n  from safetensors." + module + " import save_file\n  save_file(" + tensors +
         ", " + Target(path) + ")";
}

}  // namespace

std::string ForeignTensorsHint(const std::string& path, std::string_view begin) {
  const std::string_view entry = FirstEntry(begin);
  constexpr std::string_view kLegacyPickle = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8";
  const bool named = path.ends_with(".pt") || path.ends_with(".pth") || path.ends_with(".ckpt");
  const bool archive = !entry.empty() && (named || begin.find("/data.pkl") != begin.npos);
  if (archive || begin.starts_with(kLegacyPickle))
    return Lines("a file of PyTorch (torch.save)", "torch", "torch",
                 "{k: t.contiguous() for k, t in torch.load(" + InQuotes(path) +
                     ", map_location=\"cpu\").items()}",
                 path);
  if (entry.ends_with(".npy"))
    return Lines("an archive of NumPy (numpy.savez)", "numpy", "numpy",
                 "dict(numpy.load(" + InQuotes(path) + "))", path);
  if (begin.starts_with("\x93NUMPY"))
    return Lines("an array of NumPy (numpy.save)", "numpy", "numpy",
                 "{\"tensor\": numpy.load(" + InQuotes(path) + ")}", path);
  if (begin.starts_with("\x89HDF\r\n\x1a\n") || entry.ends_with(".weights.h5") ||
      entry == "metadata.json")
    return "is a file of Keras or HDF5, not safetensors; save its arrays with "
           "safetensors.numpy.save_file";
  if (begin.starts_with("\x80") && begin.size() > 1 && begin[1] >= 2 && begin[1] <= 5)
    return "is a pickle of Python, not safetensors; save its arrays with safetensors' save_file";
  if (begin.starts_with("PK\x03\x04")) return "is a zip archive, not safetensors";
  return "";
}

}  // namespace ada
