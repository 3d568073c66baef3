// SPDX-License-Identifier: Apache-2.0
#include "agent/core/kernel_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace muster::agent {
namespace {

// The kernel's clock is not slewed as ours is: the two part by seconds in a month.
constexpr Duration kBefore = 5min;
constexpr Duration kLongestUptime = std::chrono::hours(24 * 3660);
constexpr std::size_t kDescribed = 3;
constexpr std::size_t kTextBytes = 120;

// NVIDIA's "XID Errors", the ones that end training jobs.
constexpr std::array<std::pair<int, std::string_view>, 18> kXids{{
    {13, "graphics engine exception, usually an invalid access by the program"},
    {31, "GPU memory page fault, usually an invalid address in the program"},
    {32, "corrupted push buffer, often the PCI Express link"},
    {38, "driver firmware error"},
    {43, "the GPU stopped the program's work after an error"},
    {45, "the program's work was removed from the GPU, usually after an earlier error"},
    {48, "uncorrectable memory error (double-bit ECC)"},
    {61, "internal micro-controller breakpoint; the GPU needs a reset"},
    {62, "internal micro-controller halt; the GPU needs a reset"},
    {63, "GPU memory is marked for replacement (row remapping or page retirement)"},
    {64, "GPU memory could not be marked for replacement; the GPU needs a reset"},
    {74, "NVLink error"},
    {79, "the GPU has fallen off the bus"},
    {92, "many corrected memory errors (single-bit ECC)"},
    {94, "contained memory error (ECC); the program is lost, the GPU goes on"},
    {95, "uncontained memory error (ECC); the GPU needs a reset"},
    {119, "the GPU's system processor (GSP) does not answer"},
    {120, "the GPU's system processor (GSP) failed"},
}};

// Takes `word` from the front of `text`.
bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

template <typename Number>
std::optional<Number> take_number(std::string_view& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// What stands before `end` in `text`, which is left behind it.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view end) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return taken;
}

// "pid=1234", "pid='<unknown>'", or nothing of the kind.
std::optional<std::int64_t> pid_in(std::string_view text) {
  if (!take_until(text, "pid=")) return std::nullopt;
  const auto pid = take_number<std::int64_t>(text);
  return pid && *pid > 0 ? pid : std::nullopt;
}

// "(PCI:0000:1b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
std::optional<DeviceTrouble> numbered(DeviceTrouble::Kind kind, std::string_view text) {
  DeviceTrouble trouble;
  trouble.kind = kind;
  if (!take(text, "(")) return std::nullopt;
  const auto device = take_until(text, "): ");
  if (!device) return std::nullopt;
  trouble.device = device->starts_with("PCI:") ? device->substr(4) : *device;
  const auto number = take_number<int>(text);
  if (!number || *number <= 0) return std::nullopt;
  trouble.number = *number;
  take(text, ",");
  take(text, " ");
  trouble.pid = pid_in(text);
  trouble.text = text;
  return trouble;
}

// "0x1a2b3c: Killing python:1234 due to hardware memory corruption"
std::optional<DeviceTrouble> memory(std::string_view text) {
  DeviceTrouble trouble;
  trouble.kind = DeviceTrouble::Kind::kMemory;
  trouble.text = text;
  if (!take_until(text, "Killing ")) return std::nullopt;
  // A process name may hold anything; its number stands before " due to".
  const auto process = take_until(text, " due to hardware memory corruption");
  if (!process) return std::nullopt;
  const std::size_t colon = process->rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view number = process->substr(colon + 1);
  trouble.pid = take_number<std::int64_t>(number);
  return trouble;
}

// "oom-kill:constraint=CONSTRAINT_MEMCG,…,task=python3,pid=1234,uid=0"; names may hold anything.
std::optional<std::int64_t> chosen_victim(std::string_view text) {
  const std::size_t at = text.rfind(",pid=");
  return at == std::string_view::npos ? std::nullopt : pid_in(text.substr(at + 1));
}

// "Memory cgroup out of memory: Killed process 1234 (python3) total-vm:…", "Out of memory: Killed
// …"
std::optional<std::int64_t> killed_victim(std::string_view text) {
  const bool is_one = text.starts_with("Out of memory") || text.starts_with("Memory cgroup out of");
  if (!is_one || !take_until(text, ": Killed process ")) return std::nullopt;
  return take_number<std::int64_t>(text);
}

// What stands behind the head of a record: "priority,sequence,microseconds,flags[,…];message".
std::string_view message_of(std::string_view record) {
  const std::string_view line = record.substr(0, record.find('\n'));
  const std::size_t at = line.find(';');
  return at == std::string_view::npos ? "" : line.substr(at + 1);
}

// Records hold no control characters, but a line of ours must not be torn whatever they hold.
std::string plain(std::string_view text) {
  std::string out(text.substr(0, kTextBytes));
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = ' ';
  }
  return out;
}

std::string in_words(const DeviceTrouble& trouble) {
  if (trouble.kind == DeviceTrouble::Kind::kMemory) {
    return "uncorrectable error in main memory (" + plain(trouble.text) + ")";
  }
  const bool is_gpu = trouble.kind == DeviceTrouble::Kind::kXid;
  const std::string_view meaning = is_gpu ? xid_meaning(trouble.number) : "";
  std::string text = is_gpu ? "GPU " : "NVSwitch ";
  text += plain(trouble.device) + (is_gpu ? ": Xid " : ": SXid ");
  text += std::to_string(trouble.number) + ", ";
  text += meaning.empty() ? plain(trouble.text) : std::string(meaning);
  if (trouble.pid) text += " (pid " + std::to_string(*trouble.pid) + ")";
  return text;
}

}  // namespace

std::optional<DeviceTrouble> parse_kernel_record(std::string_view record) {
  // "priority,sequence,microseconds,flags[,…];message"
  const auto head = take_until(record, ";");
  if (!head) return std::nullopt;
  std::string_view rest = *head;
  if (!take_until(rest, ",") || !take_until(rest, ",")) return std::nullopt;
  const auto at = take_number<std::int64_t>(rest);
  if (!at || *at < 0 || *at > kLongestUptime / 1us) return std::nullopt;
  const std::string_view message = record.substr(0, record.find('\n'));
  std::optional<DeviceTrouble> trouble;
  std::string_view text = message;
  if (take(text, "NVRM: Xid ")) {
    trouble = numbered(DeviceTrouble::Kind::kXid, text);
  } else if (text = message; text.starts_with("nvidia-nvswitch") && take_until(text, ": SXid ")) {
    trouble = numbered(DeviceTrouble::Kind::kSxid, text);
  } else if (text = message; take(text, "Memory failure: ")) {
    trouble = memory(text);
  }
  if (trouble) trouble->at = Instant{std::chrono::microseconds(*at)};
  return trouble;
}

std::optional<std::int64_t> parse_oom_victim(std::string_view record) {
  std::string_view text = message_of(record);
  return take(text, "oom-kill:") ? chosen_victim(text) : killed_victim(text);
}

std::string_view xid_meaning(int number) {
  for (const auto& [value, meaning] : kXids) {
    if (value == number) return meaning;
  }
  return "";
}

std::string describe(const std::vector<DeviceTrouble>& troubles, std::int64_t pid, Instant now) {
  std::vector<const DeviceTrouble*> chosen;
  for (const DeviceTrouble& trouble : troubles) {
    if (trouble.at + kBefore < now) continue;
    const bool again = std::any_of(chosen.begin(), chosen.end(), [&](const DeviceTrouble* other) {
      return other->kind == trouble.kind && other->device == trouble.device &&
             other->number == trouble.number && other->pid == trouble.pid;
    });
    if (!again) chosen.push_back(&trouble);
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [pid](const DeviceTrouble* a, const DeviceTrouble* b) {
                     return a->pid == pid && b->pid != pid;
                   });
  std::string text;
  for (std::size_t i = 0; i < chosen.size() && i < kDescribed; ++i) {
    text += (i == 0 ? "" : "; ") + in_words(*chosen[i]);
  }
  if (chosen.size() > kDescribed) {
    text += "; " + std::to_string(chosen.size() - kDescribed) + " more in the kernel log";
  }
  return text;
}

}  // namespace muster::agent
