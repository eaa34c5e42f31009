/*
 * Preloaded into user-mode Linux: stands before the C library's ptrace() and changes two of its requests.
 *
 * The processor state that a debugger writes must be as long as the processor's whole state. User-mode Linux of Debian 12
 * writes 2,696 bytes, which is too little on processors with more state (AMX), and the kernel answers EFAULT. What it leaves
 * out is written as it was read.
 *
 * A process of the guest must never run on as a process of this machine when user-mode Linux was killed: PTRACE_O_EXITKILL.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <linux/ptrace.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char state[65536] __attribute__((aligned(64)));

long ptrace(int request, ...) {
  va_list arguments;
  va_start(arguments, request);
  long pid = va_arg(arguments, int);
  void *address = va_arg(arguments, void *);
  void *data = va_arg(arguments, void *);
  va_end(arguments);
  if (request == PTRACE_SETOPTIONS) data = (void *)((long)data | PTRACE_O_EXITKILL);
  if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
    struct iovec *given = data;
    struct iovec whole = {state, sizeof state};
    if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &whole) == 0 && whole.iov_len > given->iov_len) {
      memcpy(state, given->iov_base, given->iov_len);
      return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, address, &whole);
    }
  }
  if (request >= PTRACE_PEEKTEXT && request <= PTRACE_PEEKUSR) { /* the system call has one argument more */
    long word;
    long result = syscall(SYS_ptrace, request, pid, address, &word);
    return result < 0 ? result : word;
  }
  return syscall(SYS_ptrace, request, pid, address, data);
}
