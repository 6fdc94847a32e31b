# The libraries that eider links, each as an interface target.
#
#   llvm            LLVM 19: Debian's libLLVM, or the needed components from archives
#   vector_math     SLEEF: always needed at run time, because compiled kernels call it by name
#   data_formats    jansson, xxHash
#   threads_and_dl  pthread, dl, m
#
# With EIDER_LLVM_STATIC everything comes from archives but SLEEF, which Debian ships shared only,
# and jansson, whose archive is not position independent: both are installed beside libeider.so.

# What eider calls: NVPTX, x86 through ORC, the pass builder, and readers and writers of modules.
set(components nvptx x86codegen x86asmparser x86desc x86info orcjit passes irreader bitreader
    bitwriter debuginfodwarf linker)

function(eider_llvm_config out)
    execute_process(COMMAND ${EIDER_LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE text
        OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

# An archive for the static build, the shared library otherwise.
function(eider_library out name)
    if(EIDER_LLVM_STATIC)
        find_library(LIB_${name} NAMES lib${name}.a REQUIRED)
    else()
        find_library(LIB_${name} NAMES ${name} REQUIRED)
    endif()
    set(${out} ${LIB_${name}} PARENT_SCOPE)
endfunction()

eider_llvm_config(LLVM_INCLUDE_DIR --includedir)
eider_llvm_config(LLVM_LIB_DIR --libdir)
eider_llvm_config(LLVM_BIN_DIR --bindir)
eider_llvm_config(LLVM_VERSION --version)
message(STATUS "LLVM ${LLVM_VERSION} in ${LLVM_LIB_DIR}")

add_library(llvm INTERFACE)
if(EIDER_LLVM_STATIC)
    enable_language(CXX) # for the driver that links libstdc++
    eider_llvm_config(names --link-static --libs ${components})
    separate_arguments(names)
    eider_library(zlib z)
    eider_library(zstd zstd)
    target_link_directories(llvm INTERFACE ${LLVM_LIB_DIR})
    target_link_libraries(llvm INTERFACE ${names} ${zlib} ${zstd} rt)
else()
    eider_llvm_config(names --link-shared --libs)
    target_link_directories(llvm INTERFACE ${LLVM_LIB_DIR})
    target_link_libraries(llvm INTERFACE ${names})
endif()
target_include_directories(llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIR})

# Links a target that contains LLVM: in the static build with LLVM's own linker where there is one,
# because it folds and drops more, and with libstdc++ inside.
function(eider_set_linker target)
    if(NOT EIDER_LLVM_STATIC)
        return()
    endif()
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections
        -Wl,--exclude-libs,ALL -Wl,-s -Wl,-z,relro -Wl,-z,now)
    if(EXISTS ${LLVM_BIN_DIR}/ld.lld)
        target_link_options(${target} PRIVATE -B${LLVM_BIN_DIR} -fuse-ld=lld -Wl,--icf=all)
    endif()
endfunction()

find_library(SLEEF NAMES sleef REQUIRED)
add_library(vector_math INTERFACE)
target_link_libraries(vector_math INTERFACE -Wl,--push-state,--no-as-needed ${SLEEF}
    -Wl,--pop-state)

find_library(JANSSON NAMES jansson REQUIRED)
eider_library(xxhash xxhash)
add_library(data_formats INTERFACE)
target_link_libraries(data_formats INTERFACE ${JANSSON} ${xxhash})

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
add_library(threads_and_dl INTERFACE)
target_link_libraries(threads_and_dl INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)

if(EIDER_LLVM_STATIC)
    get_filename_component(sleef_file ${SLEEF} REALPATH)
    get_filename_component(jansson_file ${JANSSON} REALPATH)
    install(FILES ${sleef_file} DESTINATION lib RENAME libsleef.so.3)
    install(FILES ${jansson_file} DESTINATION lib RENAME libjansson.so.4)
endif()
