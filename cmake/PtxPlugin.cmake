# eider_nvptxcompiler.so: NVIDIA's PTX compiler, which exists only as an archive of 89 MB, behind
# one exported function, opened at run time.  Built when the archive and its header are found: in
# a CUDA toolkit, else in the wheel that ./dev setup installs.

file(GLOB wheels ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu1[0-9])
set(places $ENV{CUDA_HOME} /usr/local/cuda ${wheels})
find_path(NVPTXCOMPILER_INCLUDE nvPTXCompiler.h PATHS ${places} PATH_SUFFIXES include
    NO_DEFAULT_PATH)
find_library(NVPTXCOMPILER_LIBRARY libnvptxcompiler_static.a PATHS ${places}
    PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)

set(EIDER_PTX_PLUGIN OFF)
if(NOT NVPTXCOMPILER_INCLUDE OR NOT NVPTXCOMPILER_LIBRARY)
    message(STATUS "nvPTXCompiler: not found, its plug-in is not built")
    return()
endif()
message(STATUS "nvPTXCompiler: ${NVPTXCOMPILER_LIBRARY}")
set(EIDER_PTX_PLUGIN ON)

set(plugin_exports ${CMAKE_SOURCE_DIR}/cmake/ptx_plugin.map)
add_library(eider_nvptxcompiler MODULE src/codegen/nvptxcompiler_plugin.c)
target_include_directories(eider_nvptxcompiler SYSTEM PRIVATE ${NVPTXCOMPILER_INCLUDE})
target_link_libraries(eider_nvptxcompiler PRIVATE ${NVPTXCOMPILER_LIBRARY} threads_and_dl)
target_link_options(eider_nvptxcompiler PRIVATE -static-libgcc -Wl,--gc-sections -Wl,-s
    -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,--version-script=${plugin_exports})
set_target_properties(eider_nvptxcompiler PROPERTIES PREFIX "" LINK_DEPENDS ${plugin_exports})
install(TARGETS eider_nvptxcompiler LIBRARY DESTINATION lib/eider)
