/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a process: its wall clock is ahead by as many seconds as the file TEST_CLOCK holds
   now (a 64-bit integer), so that a test can set a clock without setting the machine's. Monotonic
   clocks stay as they are. A wait until a time of the wall clock looks at the clock again every
   20 ms, since the kernel, which does the waiting, knows nothing of the shift. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef long (*syscall_t)(long, ...);
typedef int (*gettime_t)(clockid_t, struct timespec*);
typedef int (*wait_t)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

static syscall_t real_syscall;
static gettime_t real_gettime;
static wait_t real_wait;
static const volatile int64_t* shift;

__attribute__((constructor)) static void find(void) {
  if (real_gettime != NULL) return;
  real_syscall = (syscall_t)dlsym(RTLD_NEXT, "syscall");
  real_wait = (wait_t)dlsym(RTLD_NEXT, "pthread_cond_clockwait");
  const char* path = getenv("TEST_CLOCK");
  const int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    void* page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) shift = page;
    close(file);
  }
  real_gettime = (gettime_t)dlsym(RTLD_NEXT, "clock_gettime");
}

static int is_wall(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  find();
  const int result = real_gettime(clock, now);
  if (result == 0 && is_wall(clock) && shift != NULL) now->tv_sec += *shift;
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec time;
  if (clock_gettime(CLOCK_REALTIME, &time) != 0) return -1;
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

static int is_over(const struct timespec* deadline) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec > deadline->tv_sec ||
         (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec);
}

/* The kernel's time in 20 ms, or the deadline where it comes earlier. */
static struct timespec next_look(const struct timespec* deadline) {
  struct timespec look;
  real_gettime(CLOCK_REALTIME, &look);
  look.tv_nsec += 20 * 1000 * 1000;
  if (look.tv_nsec >= 1000 * 1000 * 1000) {
    look.tv_nsec -= 1000 * 1000 * 1000;
    ++look.tv_sec;
  }
  struct timespec end = *deadline;
  if (shift != NULL) end.tv_sec -= *shift;
  const int earlier =
      end.tv_sec < look.tv_sec || (end.tv_sec == look.tv_sec && end.tv_nsec < look.tv_nsec);
  return earlier ? end : look;
}

/* A look at the clock is a spurious wakeup, which whoever waits must expect. */
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  find();
  if (!is_wall(clock)) return real_wait(condition, mutex, clock, deadline);
  const struct timespec look = next_look(deadline);
  const int result = real_wait(condition, mutex, clock, &look);
  return result == ETIMEDOUT && !is_over(deadline) ? 0 : result;
}

long syscall(long number, ...) {
  find();
  long words[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; ++i)
    words[i] = va_arg(list, long);
  va_end(list);
  const struct timespec* deadline = (const struct timespec*)words[3];
  const int waits = number == SYS_futex && (words[1] & FUTEX_CLOCK_REALTIME) != 0 &&
                    (words[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && deadline != NULL;
  struct timespec look;
  if (waits) {
    look = next_look(deadline);
    words[3] = (long)&look;
  }
  const long result =
      real_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
  if (waits && result != 0 && errno == ETIMEDOUT && !is_over(deadline)) errno = EINTR;
  return result;
}
