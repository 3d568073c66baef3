// SPDX-License-Identifier: Apache-2.0
//
// A worker for tests. Each first argument is one behaviour; see main.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace {

// What the process was given, one fact a line.
int show() {
  int death_signal = 0;
  ::prctl(PR_GET_PDEATHSIG, &death_signal);
  sigset_t mask;
  ::sigprocmask(SIG_BLOCK, nullptr, &mask);
  std::string blocked;
  std::string ignored;
  for (int signal = 1; signal <= 31; ++signal) {
    if (sigismember(&mask, signal) == 1) blocked += std::to_string(signal) + ",";
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) {
      ignored += std::to_string(signal) + ",";
    }
  }
  std::string descriptors;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = ::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != ::dirfd(folder)) descriptors += std::to_string(fd) + ",";
  }
  ::closedir(folder);
  const mode_t mask_of_files = ::umask(0);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  char folder_name[4096] = {};
  if (::getcwd(folder_name, sizeof folder_name - 1) == nullptr) return 1;
  ::printf("session_leader=%d\n", ::getsid(0) == ::getpid() && ::getpgrp() == ::getpid());
  ::printf("death_signal=%d\nblocked=%s\nignored=%s\n", death_signal, blocked.c_str(),
           ignored.c_str());
  ::printf("fds=%s\numask=%03o\nnofile=%lu\ncwd=%s\n", descriptors.c_str(), mask_of_files,
           static_cast<unsigned long>(files.rlim_cur), folder_name);
  ::printf("ttys=%d%d%d\n", ::isatty(0), ::isatty(1), ::isatty(2));
  return 0;
}

// Leaves the session and the parent behind, as daemons do, writes its pid to `path`, and stays.
// `keep`: descriptors and environment are kept; else both go.
int daemonise(const char* path, bool keep) {
  if (::fork() != 0) {
    // The parent must not end before the daemon is one, or tests could not tell.
    while (::access(path, F_OK) != 0)
      ::usleep(1000);
    return 0;
  }
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  if (!keep) {
    for (int fd = 0; fd < 3; ++fd)
      ::close(fd);
    ::clearenv();
  }
  const std::string temporary = std::string(path) + ".new";
  FILE* file = ::fopen(temporary.c_str(), "w");
  ::fprintf(file, "%d\n", ::getpid());
  ::fclose(file);
  ::rename(temporary.c_str(), path);
  if (!keep) ::execl("/bin/sleep", "sleep", "1000", nullptr);
  for (;;)
    ::pause();
}

// Writes `lines` lines "<tag> <number> <filler>\n", in writes of whole lines.
int flood(const char* tag, long lines) {
  const std::string filler(80, tag[0]);
  std::string batch;
  for (long line = 0; line < lines; ++line) {
    batch += tag;
    batch += " " + std::to_string(line) + " " + filler + "\n";
    if (batch.size() < 3900 && line + 1 < lines) continue;
    for (std::string_view rest(batch); !rest.empty();) {
      const ssize_t count = ::write(1, rest.data(), rest.size());
      if (count < 0) return 1;
      rest.remove_prefix(static_cast<std::size_t>(count));
    }
    batch.clear();
  }
  return 0;
}

// Forks children that fork children, for as long as it lives; at most `most` at a time each.
int breed(long most) {
  for (long i = 0; i < most; ++i) {
    if (::fork() == 0) {
      ::setsid();
      if (::fork() == 0) {
        for (;;)
          ::pause();
      }
      ::usleep(2000);
      ::_exit(0);
    }
    ::usleep(1000);
  }
  for (;;)
    ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "show") return show();
  if (what == "exit") return ::atoi(argv[2]);
  if (what == "pause") {
    for (;;)
      ::pause();
  }
  if (what == "thread") {  // thread FILE: a second thread, whose number goes there
    std::thread([path = std::string(argv[2])] {
      const std::string temporary = path + ".new";
      FILE* file = ::fopen(temporary.c_str(), "w");
      ::fprintf(file, "%d\n", ::gettid());
      ::fclose(file);
      ::rename(temporary.c_str(), path.c_str());
      for (;;)
        ::pause();
    }).detach();
    for (;;)
      ::pause();
  }
  if (what == "stubborn") {  // says "ready", then ignores what asks it to stop
    ::signal(SIGTERM, SIG_IGN);
    ::signal(SIGINT, SIG_IGN);
    if (::write(1, "ready\n", 6) != 6) return 1;
    for (;;)
      ::pause();
  }
  if (what == "daemon") {  // daemon FILE [stay]: leaves a daemon, then ends (or stays)
    const int result = daemonise(argv[2], true);
    if (argc > 3) {
      for (;;)
        ::pause();
    }
    return result;
  }
  if (what == "bare-daemon") return daemonise(argv[2], false);
  if (what == "flood") return flood(argv[2], ::atol(argv[3]));
  if (what == "breed") return breed(::atol(argv[2]));
  if (what == "crash") {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer would rather write a report
    ::raise(SIGSEGV);
  }
  return 99;
}
