// See library.h.
#include "backend/cuda/library.h"

#include <dlfcn.h>

#include <sstream>
#include <utility>

#include "error.h"
#include "io/text.h"

namespace ada::backend::cuda {
namespace {

constexpr char kPipCudnn[] = "/nvidia/cudnn/lib";

std::vector<std::string> PathEntries(const char* path) {
  std::vector<std::string> entries;
  std::istringstream text(path == nullptr ? "" : path);
  for (std::string entry; std::getline(text, entry, ':');) {
    while (entry.size() > 1 && entry.ends_with('/')) entry.pop_back();
    if (!entry.empty()) entries.push_back(entry);
  }
  return entries;
}

}  // namespace

Library::Library(std::string product, std::string name, std::vector<std::string> folders)
    : product_(std::move(product)), name_(std::move(name)), folders_(std::move(folders)) {}

void Library::Load() const {
  std::call_once(loaded_, [this] {
    handle_ = dlopen(name_.c_str(), RTLD_NOW);
    if (handle_ != nullptr) return;
    missing_ = dlerror();
    for (const std::string& folder : folders_) {
      handle_ = dlopen((folder + '/' + name_).c_str(), RTLD_NOW);
      if (handle_ != nullptr) return;
    }
  });
}

std::string Library::WhyMissing() const {
  Load();
  if (handle_ != nullptr) return "";
  std::string why = product_ + " cannot be loaded (" + missing_;
  if (!folders_.empty()) why += "; nor from " + FirstNames(folders_, folders_.size());
  return why + "); install it, or put its folder into LD_LIBRARY_PATH";
}

void* Library::Find(const char* function) const {
  Load();
  return handle_ == nullptr ? nullptr : dlsym(handle_, function);
}

void* Library::Get(const char* function) const {
  void* const found = Find(function);
  if (found != nullptr) return found;
  const std::string missing = WhyMissing();
  throw DeviceError(missing.empty() ? product_ + " has no function " + function : missing);
}

std::vector<std::string> CudaFolders(const CudaPlaces& places) {
  std::vector<std::string> folders;
  const auto add = [&folders](const std::string& folder) {
    if (!folder.empty() && !Contains(folders, folder)) folders.push_back(folder);
  };
  add(places.built_with);
  for (const char* toolkit : {places.home, places.path})
    for (const std::string& root : PathEntries(toolkit)) add(root + "/lib64");
  for (const std::string& folder : PathEntries(places.library_path)) {
    if (!folder.ends_with(kPipCudnn)) continue;
    const std::string packages = folder.substr(0, folder.size() - std::string("/cudnn/lib").size());
    add(packages + "/cu" + places.major + "/lib");
    add(packages + "/cublas/lib");
    add(packages + "/cuda_nvrtc/lib");
    add(packages + "/nccl/lib");
  }
  add("/usr/local/cuda/lib64");
  add("/usr/local/cuda-" + places.major + "/lib64");
  return folders;
}

}  // namespace ada::backend::cuda
