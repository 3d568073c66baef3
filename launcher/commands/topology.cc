// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/topology.h"

#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <hwloc.h>
#include <map>
#include <string_view>

#include <absl/status/status.h>

#include "launcher/commands/gpu_facts.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

namespace fs = std::filesystem;

// The functions of hwloc that are used here, found at run time.
struct Hwloc {
  void* library = nullptr;
  decltype(&hwloc_topology_init) init = nullptr;
  decltype(&hwloc_topology_set_synthetic) set_synthetic = nullptr;
  decltype(&hwloc_topology_load) load = nullptr;
  decltype(&hwloc_topology_destroy) destroy = nullptr;
  decltype(&hwloc_get_type_depth) depth_of = nullptr;
  decltype(&hwloc_get_nbobjs_by_depth) count_at = nullptr;
  decltype(&hwloc_get_obj_by_depth) object_at = nullptr;
  decltype(&hwloc_topology_get_allowed_cpuset) allowed = nullptr;
  decltype(&hwloc_get_cpubind) get_cpubind = nullptr;
  decltype(&hwloc_bitmap_alloc) bitmap_alloc = nullptr;
  decltype(&hwloc_bitmap_free) bitmap_free = nullptr;
  decltype(&hwloc_bitmap_dup) bitmap_dup = nullptr;
  decltype(&hwloc_bitmap_and) bitmap_and = nullptr;
  decltype(&hwloc_bitmap_next) bitmap_next = nullptr;
};

constexpr const char* kLibrary = "libhwloc.so.15";

// Stays loaded: it has state of its own.
absl::StatusOr<Hwloc> load_library() {
  Hwloc hwloc;
  hwloc.library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (hwloc.library == nullptr) {
    return absl::NotFoundError(
        cat("needs hwloc, and ", kLibrary,
            " cannot be loaded (Debian's package libhwloc15): ", ::dlerror()));
  }
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    void* found = ::dlsym(hwloc.library, name);
    if (found == nullptr) missing = name;
    function = reinterpret_cast<std::decay_t<decltype(function)>>(found);
  };
  find(hwloc.init, "hwloc_topology_init");
  find(hwloc.set_synthetic, "hwloc_topology_set_synthetic");
  find(hwloc.load, "hwloc_topology_load");
  find(hwloc.destroy, "hwloc_topology_destroy");
  find(hwloc.depth_of, "hwloc_get_type_depth");
  find(hwloc.count_at, "hwloc_get_nbobjs_by_depth");
  find(hwloc.object_at, "hwloc_get_obj_by_depth");
  find(hwloc.allowed, "hwloc_topology_get_allowed_cpuset");
  find(hwloc.get_cpubind, "hwloc_get_cpubind");
  find(hwloc.bitmap_alloc, "hwloc_bitmap_alloc");
  find(hwloc.bitmap_free, "hwloc_bitmap_free");
  find(hwloc.bitmap_dup, "hwloc_bitmap_dup");
  find(hwloc.bitmap_and, "hwloc_bitmap_and");
  find(hwloc.bitmap_next, "hwloc_bitmap_next");
  if (!missing.empty()) {
    return absl::NotFoundError(cat("needs hwloc 2, and ", kLibrary, " has no ", missing));
  }
  return hwloc;
}

// One loaded topology.
class Topology {
 public:
  explicit Topology(const Hwloc& hwloc) : hwloc_(hwloc) {}
  ~Topology() {
    if (usable_ != nullptr) hwloc_.bitmap_free(usable_);
    if (topology_ != nullptr) hwloc_.destroy(topology_);
  }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  absl::Status load(const std::string& synthetic) {
    if (hwloc_.init(&topology_) != 0) return absl::InternalError("hwloc cannot begin");
    if (!synthetic.empty() && hwloc_.set_synthetic(topology_, synthetic.c_str()) != 0) {
      return absl::InvalidArgumentError(cat("hwloc cannot read ", synthetic));
    }
    if (hwloc_.load(topology_) != 0) {
      return absl::InternalError("hwloc cannot tell what this machine looks like");
    }
    usable_ = hwloc_.bitmap_dup(hwloc_.allowed(topology_));
    if (!synthetic.empty()) return absl::OkStatus();
    hwloc_bitmap_t own = hwloc_.bitmap_alloc();
    // What taskset or a scheduler left us.
    if (hwloc_.get_cpubind(topology_, own, HWLOC_CPUBIND_PROCESS) == 0) {
      hwloc_.bitmap_and(usable_, usable_, own);
    }
    hwloc_.bitmap_free(own);
    return absl::OkStatus();
  }

  std::vector<hwloc_obj_t> objects(hwloc_obj_type_t type) const {
    std::vector<hwloc_obj_t> found;
    const int depth = hwloc_.depth_of(topology_, type);
    if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) return found;
    for (unsigned i = 0; i < hwloc_.count_at(topology_, depth); ++i)
      found.push_back(hwloc_.object_at(topology_, depth, i));
    return found;
  }

  // Usable processors that both sets have; `other` may be null.
  std::vector<int> processors(hwloc_const_bitmap_t set, hwloc_const_bitmap_t other) const {
    hwloc_bitmap_t both = hwloc_.bitmap_dup(set);
    hwloc_.bitmap_and(both, both, usable_);
    if (other != nullptr) hwloc_.bitmap_and(both, both, other);
    std::vector<int> found;
    for (int i = hwloc_.bitmap_next(both, -1); i >= 0; i = hwloc_.bitmap_next(both, i))
      found.push_back(i);
    hwloc_.bitmap_free(both);
    return found;
  }

  Domain domain_of(hwloc_const_bitmap_t set) const {
    Domain domain;
    std::vector<hwloc_obj_t> cores = objects(HWLOC_OBJ_CORE);
    if (cores.empty()) cores = objects(HWLOC_OBJ_PU);  // a virtual machine may hide its cores
    for (const hwloc_obj_t core : cores) {
      std::vector<int> here = processors(core->cpuset, set);
      if (!here.empty()) domain.cores.push_back(std::move(here));
    }
    return domain;
  }

 private:
  const Hwloc& hwloc_;
  hwloc_topology_t topology_ = nullptr;
  hwloc_bitmap_t usable_ = nullptr;
};

hwloc_obj_type_t type_of(NumaBinding binding) {
  switch (binding) {
    case NumaBinding::kSocket: return HWLOC_OBJ_PACKAGE;
    case NumaBinding::kCoreComplex: return HWLOC_OBJ_L3CACHE;
    default: return HWLOC_OBJ_NUMANODE;
  }
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string address_of(const std::string& device, const std::vector<fs::path>& listed) {
  const auto number = read_number<std::size_t>(device);
  if (number) return *number < listed.size() ? listed[*number].filename().string() : "";
  for (const fs::path& gpu : listed) {
    if (device.size() > 4 && gpu_field(gpu, "GPU UUID:").starts_with(device)) {
      return gpu.filename().string();
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<Domain>> find_domains(NumaBinding binding,
                                                 const std::string& synthetic) {
  const absl::StatusOr<Hwloc> hwloc = load_library();
  if (!hwloc.ok()) return hwloc.status();
  Topology topology(*hwloc);
  if (absl::Status status = topology.load(synthetic); !status.ok()) return status;
  std::vector<hwloc_obj_t> objects = topology.objects(type_of(binding));
  // A machine that tells of no such parts is one.
  if (objects.empty()) objects = topology.objects(HWLOC_OBJ_MACHINE);
  std::vector<Domain> domains;
  for (const hwloc_obj_t object : objects) {
    Domain domain = topology.domain_of(object->cpuset);
    if (!domain.cores.empty()) domains.push_back(std::move(domain));
  }
  if (domains.empty()) return absl::InternalError("hwloc finds no processor that may be used");
  return domains;
}

std::vector<std::optional<std::size_t>> domains_of_devices(const std::vector<std::string>& devices,
                                                           const std::vector<Domain>& domains,
                                                           const NodeProbe& probe,
                                                           const std::string& sys) {
  const std::vector<fs::path> listed = listed_gpus(probe);
  std::vector<std::optional<std::size_t>> found;
  std::map<std::vector<std::size_t>, std::size_t> taken;
  for (const std::string& device : devices) {
    found.emplace_back();
    const std::string address = address_of(device, listed);
    if (address.empty()) continue;
    const std::vector<int> local =
        parse_processor_list(first_line(sys + "/bus/pci/devices/" + address + "/local_cpulist"));
    std::vector<std::size_t> near;
    for (std::size_t i = 0; i < domains.size(); ++i) {
      const bool is_near =
          std::any_of(domains[i].cores.begin(), domains[i].cores.end(), [&](const Core& core) {
            return std::find_first_of(core.begin(), core.end(), local.begin(), local.end()) !=
                   core.end();
          });
      if (is_near) near.push_back(i);
    }
    // One that is near to all says nothing; those that are near to the same few take them in turn.
    if (near.empty() || near.size() == domains.size()) continue;
    found.back() = near[taken[near]++ % near.size()];
  }
  return found;
}

}  // namespace muster::launcher
