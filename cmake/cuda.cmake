# The CUDA backend: liblq_cuda.so, a plug-in that lq loads when a device "cuda" is asked for; nothing else knows CUDA. It has its own
# copy of the library inside and shows two names. nvcc makes the kernels, the C compiler the rest.
set(LQ_CUDA_HOST kernels/cuda/cuda.c kernels/cuda/slots.c kernels/cuda/fast.c kernels/cuda/fast_attn.c
  kernels/cuda/fast_library.c
  kernels/cuda/fast_products.c kernels/cuda/fast_rows.c kernels/cuda/fast_state.c kernels/cuda/fast_w8a8.c kernels/cuda/hosted.c
  kernels/cuda/pinned.c kernels/cuda/sample.c
  kernels/cuda/choose.c kernels/cuda/meter.c kernels/cuda/round.c kernels/cuda/solve.c
  kernels/cuda/tries.c)
get_filename_component(LQ_CUDA_HOME "${LQ_NVCC}" REALPATH)
get_filename_component(LQ_CUDA_HOME "${LQ_CUDA_HOME}/../.." ABSOLUTE)
find_library(LQ_CUDART cudart_static HINTS ${LQ_CUDA_HOME}/lib64 ${LQ_CUDA_HOME}/targets/x86_64-linux/lib)
set(LQ_CUDA_ARCHS "80;90a" CACHE STRING "architectures that it has kernels for; others from Ampere on compile those of the first as they load it")
list(GET LQ_CUDA_ARCHS 0 first)
set(gencode -gencode=arch=compute_${first},code=compute_${first})
foreach(arch ${LQ_CUDA_ARCHS})
  list(APPEND gencode -gencode=arch=compute_${arch},code=sm_${arch})
endforeach()
# nvcc may be there and take none of the host's compilers.
set(works FALSE)
if(LQ_NVCC AND LQ_CUDART AND NOT LQ_SANITIZE AND NOT LQ_FUZZ)
  file(WRITE ${CMAKE_BINARY_DIR}/cuda/empty.cu "__global__ void nothing() {}\n")
  execute_process(COMMAND ${LQ_NVCC} -std=c++17 ${gencode} -c ${CMAKE_BINARY_DIR}/cuda/empty.cu -o ${CMAKE_BINARY_DIR}/cuda/empty.o
    RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(status EQUAL 0)
    set(works TRUE)
  endif()
endif()
option(LQ_CUDA "build the plug-in for NVIDIA GPUs" ${works})
if(LQ_CUDA AND NOT works)
  message(FATAL_ERROR "LQ_CUDA: nvcc (${LQ_NVCC}) and libcudart_static.a (${LQ_CUDART}) are needed, without sanitizers, and a C++ compiler that nvcc takes. ${said}")
endif()

# A shared library that shows the plug-in's border alone.
function(lq_plugin name)
  add_library(${name} SHARED ${LQ_CUDA_HOST} ${ARGN})
  target_link_libraries(${name} PRIVATE lq_static)
  if("90a" IN_LIST LQ_CUDA_ARCHS)
    target_compile_definitions(${name} PRIVATE LQ_HAS_90A)
  endif()
  target_link_options(${name} PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/kernels/cuda/cuda.map -Wl,--no-undefined)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME lq_cuda LINK_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/cuda.map)
endfunction()

if(LQ_CUDA)
  # Nothing is fused unasked: the plain kernels have the bits of portable C, others those of the emulated machine.
  file(GLOB kernels RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS kernels/cuda/*.cu kernels/cuda/plain/*.cu)
  foreach(file ${kernels})
    get_filename_component(name ${file} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    set(kept ${CMAKE_BINARY_DIR}/cuda/${name}.kept) # ptx, cubins and what was said of them, which tests/cuda/check_kernels.py reads
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${kept}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${kept}
      COMMAND ${LQ_NVCC} -std=c++17 -O3 -fmad=false ${gencode} -Werror all-warnings -Xcompiler=-fPIC,-fno-threadsafe-statics -I${CMAKE_SOURCE_DIR} -Xptxas -v --keep --keep-dir ${kept} -MD -MF ${object}.d -c ${CMAKE_SOURCE_DIR}/${file} -o ${object} > ${kept}/said 2>&1 || (cat ${kept}/said && false)
      COMMAND rm -f ${kept}/*.ii ${kept}/*.cudafe1.* ${kept}/*.fatbin*
      DEPENDS ${file} DEPFILE ${object}.d COMMENT "nvcc ${file}")
    list(APPEND objects ${object})
  endforeach()
  lq_plugin(lq_cuda kernels/cuda/gpu.c kernels/cuda/solver.c kernels/cuda/lt.c ${objects})
  target_include_directories(lq_cuda SYSTEM PRIVATE ${LQ_CUDA_HOME}/include)
  target_link_libraries(lq_cuda PRIVATE ${LQ_CUDART} rt)
  install(TARGETS lq_cuda)
  set(LQ_PARTS_USED "CUDA toolkit")
  string(REGEX REPLACE "^CUDA toolkit(, )?" "" LQ_PARTS_UNUSED "${LQ_PARTS_UNUSED}")
endif()
