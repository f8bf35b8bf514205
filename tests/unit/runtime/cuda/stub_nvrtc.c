/* A libnvrtc that does what the text says. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>

static const char* text;

int nvrtcVersion(int* major, int* minor) { *major = 13, *minor = 0; return 0; }
const char* nvrtcGetErrorString(int result) { return result == 1 ? "NVRTC_ERROR_OUT_OF_MEMORY" : "NVRTC_ERROR"; }
int nvrtcGetNumSupportedArchs(int* count) { *count = 1; return 0; }
int nvrtcGetSupportedArchs(int* archs) { *archs = 80; return 0; }
int nvrtcDestroyProgram(void** program) { return 0; }
int nvrtcGetProgramLogSize(void* program, size_t* size) { *size = 1; return 0; }
int nvrtcGetProgramLog(void* program, char* log) { *log = 0; return 0; }
int nvrtcGetCUBINSize(void* program, size_t* size) { *size = 5; return 0; }
int nvrtcGetCUBIN(void* program, char* image) { memcpy(image, "cubin", 5); return 0; }

int nvrtcCreateProgram(void** program, const char* source, const char* name, int headers, void* a, void* b) {
    text = strdup(source);
    return 0;
}

int nvrtcCompileProgram(void* program, int count, const char** options) {
    if (strstr(text, "crash")) {
        fprintf(stderr, "first line\nlast line\n");
        raise(SIGSEGV);
    }
    if (strstr(text, "leave")) exit(3);
    if (strstr(text, "sleep")) sleep(100);
    if (strstr(text, "print")) puts("a line that is no reply"), fflush(stdout);
    if (strstr(text, "fail")) return 11;
    if (strstr(text, "grow")) while (malloc(1 << 24)) {}
    if (strstr(text, "throw")) {
        while (malloc(1 << 24)) {}
        fprintf(stderr, "terminate called after throwing an instance of 'std::bad_alloc'\n");
        abort();
    }
    return strstr(text, "grow") ? 1 : 0;
}
