/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling Muster how far a worker is, in one call: C11 and C++ on POSIX, this header only.
 *
 *     muster_report(step, loss, samples, checkpoint_step, "training");
 *
 * The file named by MUSTER_PROGRESS_FILE is mapped at the first call; without that variable every
 * call is a cheap no-op, so a program may report whether or not Muster started it. What is told
 * feeds hang detection, goodput and `muster status`; and a fault plan's `step` faults act at
 * exactly the step reported, inside the call.
 *
 * Layout: 4096 bytes, little-endian, the struct below. `step` is stored last, with release order:
 * a reader that loads it (acquire) sees the other fields of the same report or of a later one.
 * Fault word: bits 0-55 step, bits 56-63 action (0 none, 1 kill, 2 stop, 3 exit); the agent
 * writes it before exec, the worker zeroes it before the step becomes visible, then acts.
 *
 * Thread rule: one thread of the process reports. The map is kept per translation unit.
 */
#ifndef MUSTER_WORKER_RUNTIME_PROGRESS_H_
#define MUSTER_WORKER_RUNTIME_PROGRESS_H_

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
#define MUSTER_PROGRESS_ASSERT(condition, text) static_assert(condition, text)
#define MUSTER_PROGRESS_CAST(type, value) static_cast<type>(value)
#define MUSTER_PROGRESS_NULL nullptr
extern "C" {
#else
#define MUSTER_PROGRESS_ASSERT(condition, text) _Static_assert(condition, text)
#define MUSTER_PROGRESS_CAST(type, value) ((type)(value))
#define MUSTER_PROGRESS_NULL NULL
#endif

#define MUSTER_PROGRESS_MAGIC UINT64_C(0x314750525453554D) /* "MUSTRPG1" in file order */
#define MUSTER_PROGRESS_FILE_BYTES 4096

#define MUSTER_FAULT_KILL 1 /* argument: signal number */
#define MUSTER_FAULT_STOP 2
#define MUSTER_FAULT_EXIT 3 /* argument: exit code */
#define MUSTER_FAULT_STEP_MASK UINT64_C(0x00FFFFFFFFFFFFFF)

struct muster_progress {
  uint64_t magic;
  uint64_t step;
  uint64_t unix_ns;
  double loss;
  uint64_t samples;
  uint64_t checkpoint_step; /* last complete checkpoint; 0: none yet */
  uint64_t fault_word;
  uint64_t fault_argument;
  char state[64]; /* text for people, zero-padded */
};

MUSTER_PROGRESS_ASSERT(sizeof(double) == 8, "loss is an IEEE double");
MUSTER_PROGRESS_ASSERT(offsetof(struct muster_progress, step) == 8, "layout");
MUSTER_PROGRESS_ASSERT(offsetof(struct muster_progress, unix_ns) == 16, "layout");
MUSTER_PROGRESS_ASSERT(offsetof(struct muster_progress, loss) == 24, "layout");
MUSTER_PROGRESS_ASSERT(offsetof(struct muster_progress, samples) == 32, "layout");
MUSTER_PROGRESS_ASSERT(offsetof(struct muster_progress, checkpoint_step) == 40, "layout");
MUSTER_PROGRESS_ASSERT(offsetof(struct muster_progress, fault_word) == 48, "layout");
MUSTER_PROGRESS_ASSERT(offsetof(struct muster_progress, fault_argument) == 56, "layout");
MUSTER_PROGRESS_ASSERT(offsetof(struct muster_progress, state) == 64, "layout");
MUSTER_PROGRESS_ASSERT(sizeof(struct muster_progress) == 128, "layout");
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the progress file is little-endian"
#endif

/* Maps the file that MUSTER_PROGRESS_FILE names and writes the magic; a null pointer where there
 * is none or it is not of the right size. */
static inline struct muster_progress* muster_progress_map(void) {
  const char* path = getenv("MUSTER_PROGRESS_FILE");
  struct stat info;
  struct muster_progress* map = MUSTER_PROGRESS_NULL;
  if (path == MUSTER_PROGRESS_NULL || path[0] == '\0') return map;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return map;
  if (fstat(file, &info) == 0 && info.st_size == MUSTER_PROGRESS_FILE_BYTES) {
    void* const memory = mmap(MUSTER_PROGRESS_NULL, MUSTER_PROGRESS_FILE_BYTES,
                              PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) map = MUSTER_PROGRESS_CAST(struct muster_progress*, memory);
  }
  close(file);
  if (map != MUSTER_PROGRESS_NULL) {
    __atomic_store_n(&map->magic, MUSTER_PROGRESS_MAGIC, __ATOMIC_RELEASE);
  }
  return map;
}

/* The process's map, made at the first call; a null pointer where nothing is to be reported. */
static inline struct muster_progress* muster_progress_get(void) {
  static struct muster_progress* map = MUSTER_PROGRESS_NULL;
  static int tried = 0;
  if (!tried) {
    tried = 1;
    map = muster_progress_map();
  }
  return map;
}

/* Does to this process what a fault plan asked for. Returns after a stop was continued, or when
 * the signal did not end the process. */
static inline void muster_progress_act(uint64_t action, uint64_t argument) {
  if (action == MUSTER_FAULT_KILL) {
    kill(getpid(), MUSTER_PROGRESS_CAST(int, argument));
  } else if (action == MUSTER_FAULT_STOP) {
    kill(getpid(), SIGSTOP);
  } else if (action == MUSTER_FAULT_EXIT) {
    _exit(MUSTER_PROGRESS_CAST(int, argument));
  }
}

/* Reports that `step` is done. `samples`: consumed so far; `checkpoint_step`: the last complete
 * checkpoint, 0 if none; `state`: a few words or a null pointer. Returns 1 where it was written,
 * 0 where this process has no progress file. May not return: see fault word. */
static inline int muster_report(uint64_t step, double loss, uint64_t samples,
                                uint64_t checkpoint_step, const char* state) {
  struct muster_progress* const map = muster_progress_get();
  struct timespec now;
  if (map == MUSTER_PROGRESS_NULL) return 0;
  clock_gettime(CLOCK_REALTIME, &now);
  map->unix_ns = MUSTER_PROGRESS_CAST(uint64_t, now.tv_sec) * UINT64_C(1000000000) +
                 MUSTER_PROGRESS_CAST(uint64_t, now.tv_nsec);
  map->loss = loss;
  map->samples = samples;
  map->checkpoint_step = checkpoint_step;
  if (state != MUSTER_PROGRESS_NULL) {
    size_t length = strlen(state);
    if (length > sizeof(map->state) - 1) length = sizeof(map->state) - 1;
    memcpy(map->state, state, length);
    memset(map->state + length, 0, sizeof(map->state) - length);
  }
  const uint64_t word = __atomic_load_n(&map->fault_word, __ATOMIC_ACQUIRE);
  const uint64_t action = word >> 56U;
  const int due = action != 0 && step >= (word & MUSTER_FAULT_STEP_MASK);
  if (due) __atomic_store_n(&map->fault_word, UINT64_C(0), __ATOMIC_RELEASE);
  __atomic_store_n(&map->step, step, __ATOMIC_RELEASE);
  if (due) muster_progress_act(action, map->fault_argument);
  return 1;
}

#ifdef __cplusplus
}
#endif

#endif /* MUSTER_WORKER_RUNTIME_PROGRESS_H_ */
