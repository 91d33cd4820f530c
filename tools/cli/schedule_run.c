#include "tools/cli/schedule_run.h"

#include "tools/report/page.h"

static ds_status compare_schedules(const cli_source *source, const cli_options *cli, ds_buf *head,
                                   ds_schedule_table *table, ds_error *err) {
    const ds_binding *binding = &source->binding;
    const ds_profiles *profiles;
    ds_sim_options options = {0};
    DS_TRY(ds_sim_options_read(binding, &options, err));
    DS_TRY(cli_load_profiles(cli, &profiles, err));
    cli_tell_costs(source, profiles, head);
    ds_status status = ds_schedules_compare(binding, profiles, &options, table, err);
    return status;
}

static ds_status write_page(const ds_schedule_table *table, const cli_options *options,
                            const char *path, ds_error *err) {
    if (!path) return DS_OK;
    ds_buf json = {0}, page = {0};
    ds_report_schedules_json(table, &json);
    report_schedules_page(json.text, &page);
    ds_status status = cli_write(options, path, page.text, page.n, err);
    ds_buf_deinit(&json);
    ds_buf_deinit(&page);
    return status;
}

int cli_schedule_run(const char *file, cli_options *options,
                     void (*report)(const ds_schedule_table *, ds_buf *), const char *html) {
    cli_source source;
    ds_schedule_table table = {0};
    ds_buf text = {0};
    ds_error err;
    int exit_code = ds_status_exit_code(cli_open(file, options, &source));
    if (!exit_code &&
        compare_schedules(&source, options, report == ds_report_schedules ? &text : NULL, &table,
                          &err) != DS_OK)
        exit_code = cli_fail(source.unit, &err);
    if (!exit_code) {
        report(&table, &text);
        exit_code = ds_schedule_table_any(&table) ? 0 : 1;
        if (write_page(&table, options, html, &err) != DS_OK ||
            cli_print(text.text, text.n, &err) != DS_OK)
            exit_code = cli_fail(source.unit, &err);
    }
    ds_buf_deinit(&text);
    ds_schedule_table_deinit(&table);
    cli_close(&source);
    return exit_code;
}
