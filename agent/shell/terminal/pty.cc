// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/terminal/pty.h"

#include <array>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

namespace muster::agent {

std::optional<Pty> open_pty(int like) {
  Pty pty;
  pty.master.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pty.master.valid()) return std::nullopt;
  std::array<char, 64> path{};
  if (::grantpt(pty.master.get()) != 0 || ::unlockpt(pty.master.get()) != 0 ||
      ::ptsname_r(pty.master.get(), path.data(), path.size()) != 0) {
    return std::nullopt;
  }
  pty.slave.reset(::open(path.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pty.slave.valid()) return std::nullopt;
  termios modes{};
  if (::tcgetattr(pty.slave.get(), &modes) != 0) return std::nullopt;
  modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  modes.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  if (::tcsetattr(pty.slave.get(), TCSANOW, &modes) != 0) return std::nullopt;
  copy_terminal_size(like, pty.master.get());
  const int flags = ::fcntl(pty.master.get(), F_GETFL);
  ::fcntl(pty.master.get(), F_SETFL, flags | O_NONBLOCK);
  return pty;
}

void copy_terminal_size(int like, int terminal) {
  winsize size{};
  if (::ioctl(like, TIOCGWINSZ, &size) == 0) ::ioctl(terminal, TIOCSWINSZ, &size);
}

}  // namespace muster::agent
