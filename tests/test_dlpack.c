/* test_dlpack.c -- tensors of DLPack become arguments, view and offset included. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "eider/dlpack.h"

static void a_view_keeps_its_data_shape_and_strides(void **state)
{
    (void)state;
    float data[32];
    int64_t shape[] = {3, 4}, strides[] = {8, 1};
    eider_tensor tensor;
    DLTensor from = {.data = data,
                     .device = {1, 0},
                     .ndim = 2,
                     .dtype = {2, 32, 1},
                     .shape = shape,
                     .strides = strides,
                     .byte_offset = 8};
    assert_int_equal(eider_tensor_from_dlpack(&from, &tensor), EIDER_OK);
    assert_ptr_equal(tensor.data, data + 2);
    assert_int_equal(tensor.type, EIDER_F32);
    assert_int_equal(tensor.rank, 2);
    assert_ptr_equal(tensor.shape, shape);
    assert_ptr_equal(tensor.strides, strides);
    from.data = NULL;
    assert_int_equal(eider_tensor_from_dlpack(&from, &tensor), EIDER_OK);
    assert_null(tensor.data);
}

static void every_type_of_eider_has_a_type_of_dlpack(void **state)
{
    (void)state;
    int found[16] = {0};
    for (int code = 0; code < 20; code++) {
        for (int bits = 8; bits <= 64; bits *= 2) {
            DLDataType type = {(uint8_t)code, (uint8_t)bits, 1};
            int32_t ours = eider_dtype_from_dlpack(type);
            if (ours < 0) continue;
            assert_int_equal(eider_dtype_size((eider_dtype)ours), bits / 8);
            found[ours]++;
        }
    }
    for (int i = 0; eider_dtype_name((eider_dtype)i); i++) assert_int_equal(found[i], 1);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    eider_tensor tensor;
    DLTensor from = {.ndim = 1, .dtype = {5, 64, 1}};
    assert_int_equal(eider_tensor_from_dlpack(&from, &tensor), EIDER_TYPE);
    from.dtype = (DLDataType){2, 32, 4};
    assert_int_equal(eider_tensor_from_dlpack(&from, &tensor), EIDER_TYPE);
    from.dtype = (DLDataType){2, 32, 1};
    from.ndim = 9;
    assert_int_equal(eider_tensor_from_dlpack(&from, &tensor), EIDER_SHAPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_keeps_its_data_shape_and_strides),
        cmocka_unit_test(every_type_of_eider_has_a_type_of_dlpack),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("dlpack", tests, NULL, NULL);
}
