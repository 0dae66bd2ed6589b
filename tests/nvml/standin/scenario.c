/* The scenario file: one word and its arguments a line. See board.py, which writes it. */
#define _GNU_SOURCE
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *grown(void *list, size_t count, size_t size)
{
    /* Powers of two, so that growing is seldom. */
    if (count && (count & (count - 1)))
        return list;
    list = realloc(list, (count ? 2 * count : 1) * size);
    if (!list)
        abort();
    return list;
}

static Object *add_object(Scenario *scenario, int card, int slot)
{
    scenario->objects = grown(scenario->objects, scenario->n_objects, sizeof(Object));
    Object *object = &scenario->objects[scenario->n_objects++];
    *object = (Object){.card = card, .slot = slot};
    return object;
}

static void add_value(Object *object, const char *key, const char *value)
{
    object->values = grown(object->values, object->n_values, sizeof(Value));
    object->values[object->n_values++] = (Value){strdup(key), strdup(value), strtoull(value, NULL, 0)};
}

static void add_rule(Object *object, const char *word, const char *call, int amount)
{
    object->rules = grown(object->rules, object->n_rules, sizeof(Rule));
    Rule *rule = &object->rules[object->n_rules++];
    *rule = (Rule){.call = strdup(call)};
    size_t length = strlen(rule->call);
    if (length && rule->call[length - 1] == '*') {
        rule->is_prefix = 1;
        rule->call[length - 1] = 0;
    }
    if (!strcmp(word, "fail"))
        rule->code = amount;
    else if (!strcmp(word, "slow"))
        rule->slow_ms = amount;
    else
        rule->hangs = 1;
}

static void add_process(Object *object, const char *line)
{
    Process it = {0};
    char name[256] = "";
    if (sscanf(line, "%*s %c %u %llu %u %u %u %u %255[^\n]", &it.kind, &it.pid, &it.used, &it.gpu_instance,
               &it.compute_instance, &it.sm_percent, &it.memory_percent, name) < 7)
        return;
    it.name = strdup(name);
    object->processes = grown(object->processes, object->n_processes, sizeof(Process));
    object->processes[object->n_processes++] = it;
}

static void add_event(Scenario *scenario, const char *line)
{
    Event it;
    if (scenario->n_events < MOST_EVENTS && sscanf(line, "%*s %llu %d %llu %llu %u %u", &it.serial, &it.card, &it.type,
                                                   &it.data, &it.gpu_instance, &it.compute_instance) == 6)
        scenario->events[scenario->n_events++] = it;
}

static Object *take(Scenario *scenario, Object *object, char *line)
{
    char word[16] = "", key[64] = "";
    int amount = 0, used = 0;
    if (sscanf(line, "%15s %63s%n %d", word, key, &used, &amount) < 1)
        return object;
    if (!strcmp(word, "card"))
        return add_object(scenario, atoi(key), -1);
    if (!strcmp(word, "mig"))
        return add_object(scenario, atoi(key), amount);
    if (!strcmp(word, "set"))
        add_value(object, key, line + used + (line[used] == ' '));
    else if (!strcmp(word, "process"))
        add_process(object, line);
    else if (!strcmp(word, "event"))
        add_event(scenario, line);
    else
        add_rule(object, word, key, amount);
    return object;
}

Scenario *scenario_read(const char *path)
{
    Scenario *scenario = calloc(1, sizeof *scenario);
    if (!scenario)
        abort();
    Object *object = add_object(scenario, -1, -1);
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file)
        return scenario;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) >= 0) {
        line[strcspn(line, "\n")] = 0;
        object = take(scenario, object, line);
    }
    free(line);
    fclose(file);
    return scenario;
}

void scenario_free(Scenario *scenario)
{
    if (!scenario)
        return;
    for (size_t i = 0; i < scenario->n_objects; i++) {
        Object *object = &scenario->objects[i];
        for (size_t j = 0; j < object->n_values; j++)
            free(object->values[j].key), free(object->values[j].text);
        for (size_t j = 0; j < object->n_rules; j++)
            free(object->rules[j].call);
        for (size_t j = 0; j < object->n_processes; j++)
            free(object->processes[j].name);
        free(object->values), free(object->rules), free(object->processes);
    }
    free(scenario->objects);
    free(scenario);
}

Object *scenario_find(Scenario *scenario, int card, int slot)
{
    for (size_t i = 0; i < scenario->n_objects; i++)
        if (scenario->objects[i].card == card && scenario->objects[i].slot == slot)
            return &scenario->objects[i];
    return NULL;
}

Object *scenario_card_at(Scenario *scenario, uint index)
{
    for (size_t i = 1; i < scenario->n_objects; i++)
        if (scenario->objects[i].slot < 0 && index-- == 0)
            return &scenario->objects[i];
    return NULL;
}

int scenario_index_of(Scenario *scenario, int card)
{
    int index = 0;
    for (size_t i = 1; i < scenario->n_objects; i++) {
        if (scenario->objects[i].slot >= 0)
            continue;
        if (scenario->objects[i].card == card)
            return index;
        index++;
    }
    return -1;
}

uint scenario_count(Scenario *scenario)
{
    uint count = 0;
    for (size_t i = 1; i < scenario->n_objects; i++)
        count += scenario->objects[i].slot < 0;
    return count;
}

Value *value_of(Object *object, const char *key)
{
    for (size_t i = 0; i < object->n_values; i++)
        if (!strcmp(object->values[i].key, key))
            return &object->values[i];
    return NULL;
}
